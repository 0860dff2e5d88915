import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumeQueueRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.messages import MAX_COUNT, MessageRequests
from rocketbroker.store.commitlog.put_message import Refusal
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.golden_store import manifest
from tests.support.processor_calls import call, call_async, family, recorded, refusal, refusal_async
from tests.support.stores import message, put_forged, read_queue
from tests.support.transactions import CHECK_MAX_TOPIC, COMMIT, ROLLBACK, Transactions


@pytest.fixture
def processor(parts, golden_store):
    return family(MessageRequests, parts, queues=golden_store.queues)


def header(index=0, count=10, topic="StFill", queue_id=0, group=None):
    return QueryConsumeQueueRequestHeader(topic, queue_id, index, count, group)


@pytest.mark.parametrize(("index", "count"), [(0, 5), (55, 10), (0, 200), (125, 10), (130, 10), (7, 0)])
def test_entries_of_a_recorded_queue_across_its_files(processor, index, count):
    messages = [m for m in manifest("clean")["messages"] if (m["topic"], m["queueId"]) == ("StFill", 0)]
    answer = call(processor.query_consume_queue, header(index, count))
    assert (answer.body["minQueueIndex"], answer.body["maxQueueIndex"]) == (0, 130)
    assert answer.body["queueData"] == [
        {"eval": False, "physicOffset": m["phyOffset"], "physicSize": m["size"], "tagsCode": m["cqTagCode"]}
        for m in messages[index : index + count]
    ]


def test_the_groups_subscription_is_answered(consumer, processor):
    offline = call(processor.query_consume_queue, header(group="CG_Live")).body
    assert offline["filterData"] == "CG_Live@StFill is not online!"
    consumer("CG_Live", "client", "StFill")
    online = call(processor.query_consume_queue, header(group="CG_Live")).body
    assert online["subscriptionData"]["subString"] == "*"
    assert online["filterData"] == "null"
    assert online["queueData"] == offline["queueData"]


def test_an_empty_group_is_not_online(processor):
    answer = call(processor.query_consume_queue, header(group=""))
    assert answer.code == 0
    assert answer.body["filterData"] == "@StFill is not online!"
    assert answer.body["queueData"] == call(processor.query_consume_queue, header()).body["queueData"]


def test_a_request_without_a_group_is_answered(processor):
    fields = {"topic": "StFill", "queueId": "0", "index": "0", "count": "3"}
    answer = call(processor.query_consume_queue, from_ext_fields(fields, QueryConsumeQueueRequestHeader))
    assert (answer.code, len(answer.body["queueData"])) == (0, 3)
    assert answer.body.keys() & {"filterData", "subscriptionData"} == set()


def test_the_filter_that_the_group_has(parts, consumer, processor):
    consumer("CG_Live", "client", "StFill")
    apply_updates([parts.config], {"enablePropertyFilter": "true"})
    parts.consumer_filters.register("CG_Live", [SubscriptionData("StFill", "a > 1", 7, expression_type="SQL92")])
    told = json.loads(call(processor.query_consume_queue, header(group="CG_Live")).body["filterData"])
    assert (told["expression"], told["clientVersion"], told["dead"]) == ("a > 1", 7, False)
    assert told["bloomFilterData"]["bitNum"] == 112


class Queue:
    """A queue that holds what a recorded answer tells of."""

    holds_batches = False

    def __init__(self, body):
        self.min_offset, self.max_offset = body["minQueueIndex"], body["maxQueueIndex"]
        self._data = [(row["physicOffset"], row["physicSize"], row["tagsCode"]) for row in body["queueData"]]

    def entries(self, queue_offset, limit):
        return iter(self._data[queue_offset : queue_offset + limit])


def test_recorded_requests(parts, consumer):
    seen = 0
    for command, theirs in recorded(321, QueryConsumeQueueRequestHeader):
        queues = {command.header.queue_id: Queue(theirs.body)}

        class Queues:
            find = staticmethod(lambda _topic, queue_id, queues=queues: queues.get(queue_id))

        if "subscriptionData" in theirs.body:
            consumer(command.header.consumer_group, "client", command.header.topic)
            theirs.body["subscriptionData"]["subVersion"] = 1795256109612
        ours = call(
            family(MessageRequests, parts, queues=cast("ConsumeQueueStore", Queues())).query_consume_queue,
            command.header,
        )
        assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
        seen += 1
    assert seen == 3


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (header(topic="../up"), ResponseCode.INVALID_PARAMETER, "'../up'"),
        (header(queue_id=-1), ResponseCode.INVALID_PARAMETER, "queueId -1"),
        (header(count=-1), ResponseCode.INVALID_PARAMETER, "count -1"),
        (header(count=MAX_COUNT + 1), ResponseCode.INVALID_PARAMETER, f"use 0 to {MAX_COUNT}"),
        (header(group="../up"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (header(queue_id=9), ResponseCode.SYSTEM_ERROR, "9@StFill is not exist!"),
        (header(index=131), ResponseCode.SYSTEM_ERROR, "Index 131 of 0@StFill is not exist! Use 0 to 130"),
        (header(index=-1), ResponseCode.SYSTEM_ERROR, "Index -1 of 0@StFill"),
    ],
)
def test_bad_requests_are_named(processor, wrong, code, named):
    found_code, remark = refusal(processor.query_consume_queue, wrong)
    assert found_code == code
    assert named in remark


CODE = 323


@pytest.fixture
async def transactions(tmp_path: Path) -> AsyncIterator[Transactions]:
    found = await Transactions.open(tmp_path / "store", settings={"transaction_check_max": 1})
    yield found
    await found.close()


def make(transactions: Transactions) -> MessageRequests:
    store = transactions.store
    return family(
        MessageRequests,
        appender=store.appender,
        queries=store.queries,
        acknowledgements=store.acknowledgements,
        transactions=transactions.service,
    )


@pytest.fixture
def processor_resume_check_half_message(transactions: Transactions) -> MessageRequests:
    return make(transactions)


def header_resume_check_half_message(msg_id: str | None) -> ResumeCheckHalfMessageRequestHeader:
    return ResumeCheckHalfMessageRequestHeader("T", msg_id)


async def given_up(transactions: Transactions) -> MessageExt:
    transactions.send(b"given up")
    await transactions.check()
    await transactions.check()
    (found,) = read_queue(transactions.store, CHECK_MAX_TOPIC, 0)
    return found


async def test_a_discarded_transaction_is_checked_again_and_may_be_committed(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    assert (
        await call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(message.offset_msg_id),
        )
    ).code == ResponseCode.SUCCESS
    producer = transactions.producer("one")
    await transactions.check(0.001)
    (copy,) = transactions.asked(producer)
    assert copy.get_property("TRANSACTION_CHECK_TIMES") == "1"
    transactions.end(copy, from_transaction_check=True)
    assert transactions.bodies() == [b"given up"]


async def test_one_that_is_asked_for_again_already_is_rejected(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    await call_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(message.offset_msg_id),
    )
    code, remark = await refusal_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(message.offset_msg_id),
    )
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, f"transaction {message.uniq_key} is being checked already")


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_resumed_transaction_that_has_ended_is_rejected(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests, outcome: int
):
    message = await given_up(transactions)
    await call_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(message.offset_msg_id),
    )
    (_, _, copy) = transactions.halves()
    transactions.end(copy, outcome)
    bodies = transactions.bodies()
    code, remark = await refusal_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(message.offset_msg_id),
    )
    assert code == ResponseCode.SYSTEM_ERROR
    assert f"transaction {message.uniq_key} was resumed as half message 2 and has ended" in remark
    assert len(transactions.halves()) == 3
    assert transactions.bodies() == bodies


async def test_a_transaction_discarded_twice_is_resumed_by_its_last_message(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    first = await given_up(transactions)
    await call_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(first.offset_msg_id),
    )
    await transactions.check()
    await transactions.check()
    (_, last) = read_queue(transactions.store, CHECK_MAX_TOPIC, 0)
    code, remark = await refusal_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(first.offset_msg_id),
    )
    assert (code, "name its last message in TRANS_CHECK_MAX_TIME_TOPIC" in remark) == (1, True)
    assert (
        await call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(last.offset_msg_id),
        )
    ).code == ResponseCode.SUCCESS
    transactions.end(transactions.halves()[-1])
    assert transactions.bodies() == [b"given up"]


async def test_of_two_requests_at_a_time_one_is_rejected(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    calls = [
        call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(message.offset_msg_id),
        )
        for _ in range(2)
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert len(transactions.halves()) == 3
    assert sorted(isinstance(each, BrokerResponseError) for each in answers) == [False, True]


async def test_another_transaction_with_the_same_unique_id_is_resumed(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    transactions.send(group="Other", UNIQ_KEY=message.uniq_key or "")
    assert (
        await call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(message.offset_msg_id),
        )
    ).code == ResponseCode.SUCCESS


async def test_the_checks_of_an_open_one_restart(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    half = transactions.send()
    await transactions.check()
    (_, copy) = transactions.halves()
    assert (
        await call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(copy.offset_msg_id),
        )
    ).code == ResponseCode.SUCCESS
    assert transactions.service.open_offset(half) == 2
    await transactions.check()
    assert read_queue(transactions.store, CHECK_MAX_TOPIC, 0) == []
    assert transactions.halves()[3].get_property("TRANSACTION_CHECK_TIMES") == "1"


async def test_a_transaction_that_is_not_open_is_rejected(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    ended = transactions.send()
    transactions.end(ended)
    plain = transactions.at(transactions.store.appender.put_message(message(b"x", "Plain")).physical_offset)
    transactions.store.appender.dispatch()
    beyond = plain.offset_msg_id[:16] + f"{2**62:016X}"
    before = transactions.store.commit_log.max_offset
    for msg_id, why in (
        (ended.offset_msg_id, "is not open: it was committed, rolled back or discarded already"),
        (plain.offset_msg_id, f"the message at {plain.commit_log_offset} is of topic Plain"),
        (beyond, "no message is at 4611686018427387904, which msgId names"),
        ("F" * 32, "no message is at -1"),
        ("x", "msgId is wrong: 'x' is not an offset message id"),
        (None, "msgId is wrong"),
    ):
        code, remark = await refusal_async(
            processor_resume_check_half_message.resume_check_half_message, header_resume_check_half_message(msg_id)
        )
        assert code == ResponseCode.SYSTEM_ERROR
        assert why in remark
    assert transactions.store.commit_log.max_offset == before


async def test_a_half_message_forged_in_a_body_is_not_resumed(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    record = transactions.store.commit_log.record(message.commit_log_offset)
    assert record is not None
    forged = put_forged(transactions.store, record)

    _, remark = await refusal_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(transactions.at(forged).offset_msg_id),
    )

    assert f"no message is at {forged}, which msgId names" in remark


async def test_a_transaction_that_cannot_be_stored_stays_discarded(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    message = await given_up(transactions)
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    code, remark = await refusal_async(
        processor_resume_check_half_message.resume_check_half_message,
        header_resume_check_half_message(message.offset_msg_id),
    )
    assert (code, remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "[DISK_FULL] no room")
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    assert transactions.service.open_copy(message) is None


async def test_under_sync_flush_the_answer_waits_for_the_disk(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")
    half = transactions.send()
    await transactions.store.flusher.sync()
    processor_resume_check_half_message = make(transactions)
    assert (
        await call_async(
            processor_resume_check_half_message.resume_check_half_message,
            header_resume_check_half_message(half.offset_msg_id),
        )
    ).code == ResponseCode.SUCCESS
    assert transactions.store.flusher.flushed_offset == transactions.store.commit_log.max_offset
    await transactions.close()


async def test_the_recorded_requests_are_rejected(
    transactions: Transactions, processor_resume_check_half_message: MessageRequests
):
    """They name an ordinary message, which Apache RocketMQ put into the half topic nevertheless."""
    transactions.store.appender.put_message(message(b"first", "GoldenTopic"))
    transactions.store.appender.dispatch()
    requests = [command for command, _ in recorded(CODE, ResumeCheckHalfMessageRequestHeader)]
    assert len(requests) == 3
    for command in requests:
        code, remark = await refusal_async(
            processor_resume_check_half_message.resume_check_half_message, command.header
        )
        assert (code, "is of topic GoldenTopic" in remark) == (ResponseCode.SYSTEM_ERROR, True)


class Cleaning:
    asked = 0

    def delete_files_manually(self) -> None:
        self.asked += 1


def test_the_removal_is_requested_and_its_requester_logged(caplog):
    cleaning = Cleaning()
    with caplog.at_level(logging.WARNING):
        assert call(family(MessageRequests, cleaning=cleaning).delete_expired_commitlog) == (0, None, {}, b"")
    assert cleaning.asked == 1
    assert "removal of expired CommitLog files requested by 127.0.0.1:50000" in caplog.text
