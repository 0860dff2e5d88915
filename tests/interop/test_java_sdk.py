"""The SDK for Java alone sends priorities, and answers the questions of an administrator."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from rocketbroker.client import Message, Producer
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketbroker.codec.remoting.headers.admin import GetConsumerRunningInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.grpc_servers import GrpcServer, our_server
from tests.support.our_servers import OurServers
from tests.support.running import stopping
from tests.support.sdk_process import SdkProcess
from tests.support.sdk_toolchain import missing_sdk

pytestmark = pytest.mark.java

TOPIC, GROUP = "Asked", "CG_Asked"
LIMIT_S = 60.0


@pytest.fixture
def server(our_servers: OurServers) -> GrpcServer:
    server = our_server(our_servers)
    server.make_topic(TOPIC)
    server.make_group(GROUP)
    return server


@pytest.fixture
def sdk(server: GrpcServer, tmp_path: Path) -> Iterator[SdkProcess]:
    if reason := missing_sdk("java"):
        pytest.skip(reason)
    process = SdkProcess.start("java", server.endpoints, tmp_path)
    process.do("push", "reader", group=GROUP, topic=TOPIC, tag="*")
    yield process
    process.close()


def test_a_consumer_of_the_java_sdk_answers_an_administrator(server: GrpcServer, sdk: SdkProcess):
    async def send(failures: int) -> str:
        async with Producer("asking", server.namesrv) as producer:
            sent = await producer.send(Message(TOPIC, b"%d" % failures, properties={"failures": str(failures)}))
            return sent.offset_msg_id

    async def client_id() -> str:
        async with AdminClient(server.namesrv) as admin:
            [consumer] = (await admin.examine_consumer_connection_info(GROUP)).connection_set
            return consumer.client_id

    async def verify(message_id: str) -> ConsumeMessageDirectlyResult:
        async with AdminClient(server.namesrv) as admin:
            return await admin.consume_message_directly(GROUP, reader, TOPIC, message_id)

    async def running_info() -> ConsumerRunningInfo:
        async with stopping(RemotingClient({})) as remoting:
            header = GetConsumerRunningInfoRequestHeader(GROUP, reader, jstack_enable=True)
            question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            answer = await remoting.invoke(server.broker, question, LIMIT_S)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return ConsumerRunningInfo.decode(bytes(answer.body))

    # Each is consumed once by itself; "failures" is the number of deliveries that fail before that.
    good, bad = asyncio.run(send(0)), asyncio.run(send(99))
    sdk.wait_messages("reader", lambda found: {each["body"] for each in found} == {"0", "99"}, "both messages")
    reader = asyncio.run(client_id())
    before = len(sdk.events("message", name="reader", body="0"))
    results = [asyncio.run(verify(each)).consume_result for each in (good, bad)]
    info = asyncio.run(running_info())

    assert results == [CMResult.CR_SUCCESS, CMResult.CR_LATER]
    assert len(sdk.events("message", name="reader", body="0")) == before + 1
    assert "java.lang" in (info.jstack or "")
    assert [each.topic for each in info.subscription_set or ()] == [TOPIC]


def test_the_highest_priority_comes_first(server: GrpcServer, sdk: SdkProcess):
    topic, group = "Priority", "CG_Priority"
    server.make_topic(topic, "PRIORITY")
    server.make_group(group)
    sdk.do("producer", "priority", topic=topic)
    sdk.do("simple", "priority_reader", group=group, topic=topic, tag="*", await_ms=5000)
    for priority in (0, 2, 1, 3):
        sdk.do("send", "priority", topic=topic, body=str(priority), priority=priority)
    assert sdk.do("receive", "priority_reader", max=16, invisible_ms=10_000)["count"] == 4

    messages = sdk.events("message", name="priority_reader")
    assert [(each["body"], each["priority"]) for each in messages] == [("3", 3), ("2", 2), ("1", 1), ("0", 0)]
