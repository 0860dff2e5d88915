"""Requests of brokers, questions and their replies, and replies that nobody waits for."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import msgspec
import pytest

from rocketbroker.client.core.client_remoting_processor import (
    ClientRemotingProcessor,
    PendingReplies,
    question_properties,
    reply_message,
    reply_properties,
    reply_topic,
)
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketbroker.codec.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    GetConsumerStatusRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer
from tests.support.consumer_parts import HOST, QUEUE


def reply_to(correlation_id: str, body: bytes = b"yes", sys_flag: int = 0) -> MessageExt:
    header = ReplyMessageRequestHeader(
        "PG",
        "DefaultCluster_REPLY_TOPIC",
        "TBW102",
        4,
        1,
        sys_flag,
        1000,
        7,
        "/192.0.2.7:1234",
        "[2001:db8::1]:10911",
        2000,
        encode_properties({"CORRELATION_ID": correlation_id}).decode(),
    )
    return reply_message(header, body)


async def test_a_reply_goes_to_its_question_once():
    replies = PendingReplies()
    first, reply = replies.open()
    second, other = replies.open()
    assert first != second
    assert replies.take(reply_to(first))
    assert (await reply).body == b"yes"
    assert not replies.take(reply_to(first))
    replies.close(second)
    assert not replies.take(reply_to(second))
    assert not other.done()


def test_a_pushed_reply_has_all_fields():
    reply = reply_to("1", zlib.compress(b"yes" * 100), 0x301)
    assert (reply.body, reply.queue_id, reply.flag) == (b"yes" * 100, 1, 7)
    assert (reply.born_timestamp, reply.store_timestamp) == (1000, 2000)
    assert (reply.born_host_text, reply.store_host_text) == ("192.0.2.7:1234", "[2001:db8::1]:10911")


def test_a_reply_names_what_the_question_asked():
    properties = question_properties("1", "192.0.2.7@1", 2.5) | {"CLUSTER": "DefaultCluster", "color": "red"}
    question = msgspec.structs.replace(reply_to("1"), properties_bytes=encode_properties(properties))
    assert reply_topic(question) == "DefaultCluster_REPLY_TOPIC"
    assert reply_properties(question) == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "1",
        "REPLY_TO_CLIENT": "192.0.2.7@1",
        "TTL": "2500",
    }


def test_a_message_that_asks_nothing_is_rejected():
    with pytest.raises(InvalidMessageError, match="asks for no reply: it has no property CLUSTER"):
        reply_topic(reply_to("1"))


class Consumer:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def rebalance_soon(self) -> None:
        self.asked.append("rebalance")

    def connection_lost(self) -> None:
        self.asked.append("lost")

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        await asyncio.sleep(0)
        self.asked.append((topic, dict(offsets)))

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: len(topic)}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo({"stacks": str(with_stacks)})

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult:
        await asyncio.sleep(0)
        return ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_SUCCESS, remark=f"{message.body!r} {broker_name}"
        )


class Stage:
    def __init__(self, processor: ClientRemotingProcessor, address: str, remoting: RemotingClient) -> None:
        self.consumer = processor.consumers["CG"] = Consumer()
        self._address = address
        self._remoting = remoting

    async def ask(self, code: int, header: object, body: bytes = b"") -> Command:
        return await self._remoting.invoke(self._address, request(code, header, body))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        processor = ClientRemotingProcessor()
        # A server in the place of the client: requests arrive in the same way.
        server = RemotingServer(processor.routes(), host="127.0.0.1")
        await server.start()
        stack.push_async_callback(server.stop)
        remoting = RemotingClient()
        stack.push_async_callback(remoting.stop)
        yield Stage(processor, f"127.0.0.1:{server.port}", remoting)


async def test_a_changed_group_is_rebalanced(stage: Stage):
    for group in ("CG", "Other"):
        answer = await stage.ask(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(group))
        assert answer.code == ResponseCode.SUCCESS
    assert stage.consumer.asked == ["rebalance"]


async def test_offsets_are_reset_and_reported(stage: Stage):
    header = ResetOffsetRequestHeader("CG", "T", -1, True)
    await stage.ask(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, ResetOffsetBody({QUEUE: 4}).encode())
    assert stage.consumer.asked == [("T", {QUEUE: 4})]
    status = await stage.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequestHeader("Topic", "CG"))
    assert GetConsumerStatusBody.decode(status.body).message_queue_table == {QUEUE: 5}


async def test_the_state_is_reported(stage: Stage):
    header = GetConsumerRunningInfoRequestHeader("CG", "id", True)
    answer = await stage.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert ConsumerRunningInfo.decode(answer.body).properties == {"stacks": "True"}


async def test_a_message_is_consumed_on_request(stage: Stage):
    record = encode_record(0, 0, 3, 300, 0, 1, HOST, 2, HOST, 0, 0, b"body", b"T", b"")
    header = ConsumeMessageDirectlyResultRequestHeader("CG", "id", broker_name="broker-a")
    answer = await stage.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record)
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    assert (result.consume_result, result.remark) == (CMResult.CR_SUCCESS, "b'body' broker-a")


async def test_an_unknown_group_is_named(stage: Stage):
    answer = await stage.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("Other", "id"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer of group Other in this client")
