"""Our client and our mqadmin work with Apache's own name server and broker."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from rocketbroker.app.mqadmin.bench import bench
from rocketbroker.app.mqadmin.bench_loads import Load
from rocketbroker.app.mqadmin.doctor import doctor
from rocketbroker.app.mqadmin.top import top
from rocketbroker.app.mqadmin.why import why
from rocketbroker.client import (
    AdminClient,
    ClientConfig,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.common.clock import SystemClock
from tests.support.client_scenario import run_scenario
from tests.support.java import Java
from tests.support.java_toolchain import require_java
from tests.support.producer_scenario import check_delay, run_producer_scenario
from tests.support.two_mqadmins import Ran, run_ours

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]  # the first run fetches the jars


class Apache(NamedTuple):
    """Addresses of Apache's servers."""

    namesrv: str
    broker: str


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """One name server and one broker for all tests; each has topics of its own."""
    require_java()
    java = Java(tmp_path_factory.mktemp("java"))
    try:
        namesrv = java.namesrv().address
        yield Apache(namesrv, java.broker(namesrv).address)
    finally:
        java.close()


async def test_the_client_works_with_apaches_broker(apache: Apache):
    await run_scenario(apache.namesrv, apache.broker)


async def test_the_producer_works_with_apaches_broker(apache: Apache):
    await run_producer_scenario(apache.namesrv)
    await check_delay(apache.namesrv)


async def test_bench_and_top_work_with_apaches_broker(apache: Apache):
    async with AdminClient(apache.namesrv) as admin:
        measured = await bench(admin, "Measured", messages=50, duration=60, create=True)
        assert measured.failures == []
        assert {each.load.value: each.messages for each in measured.data["loads"]} == dict.fromkeys(Load, 50)
        seen = (await top(admin, as_json=True)).data
        assert [(row.addr, row.problem) for row in seen.brokers] == [(apache.broker, "")]
        assert seen.brokers[0].disk is not None
        assert {row.topic: row.messages for row in seen.topics}["Measured"] == 200
        removed = await bench(admin, "Gone", "sync", messages=1, create=True, clean=True)
        assert removed.data["removed"]
        assert "Gone" not in await admin.fetch_all_topic_list()


async def test_doctor_and_why_work_with_apaches_broker(apache: Apache):
    address = apache.namesrv
    async with (
        AdminClient(address) as admin,
        Producer("PG_Why", address) as producer,
        PushConsumer("CG_Why", address, handler=accept) as consumer,
    ):
        result = await producer.send(Message("WhyTopic", b"x", tags="a"), timeout_s=60)  # creates the topic
        assert (await why(admin, "CG_Why", "WhyTopic", msg_id=result.msg_id)).data["outcome"] in {"noClient", "noGroup"}
        await consumer.subscribe("WhyTopic", "b")
        async with asyncio.timeout(60):
            while (await why(admin, "CG_Why", "WhyTopic", msg_id=result.msg_id)).data["outcome"] != "filtered":
                pass
        found = (await doctor(admin, "CG_Why", "NoSuchTopic")).data
        # The disk of the machine may be full; nothing else is wrong.
        assert {each.check for each in found["findings"]} - {"disk"} == {"noRoute"}
        assert found["unknown"] == []
    await check_outcomes(apache)


async def refuse(_message: ReceivedMessage) -> None:
    raise ValueError("refused by the test")


async def bury(message: ReceivedMessage) -> None:
    await message.dead_letter()


async def accept(_message: ReceivedMessage) -> None:
    await asyncio.sleep(0)


async def check_outcomes(apache: Apache) -> None:
    """Check that ``why`` tells the outcomes of messages apart."""
    topic, unknown = "WhyOutcomes", LocalTransactionState.UNKNOWN
    config = ClientConfig(apache.namesrv, enable_trace=True)
    async with AdminClient(apache.namesrv) as admin, AsyncExitStack() as stack:
        for name in (topic, "WhyOther"):
            await admin.create_and_update_topic_config(apache.broker, TopicConfig(name, 1, 1))
        await admin.create_and_update_subscription_group_config(
            apache.broker, SubscriptionGroupConfig("CG_Suspended", consume_enable=False)
        )
        producer = await stack.enter_async_context(Producer("PG_Why", config))
        half = await stack.enter_async_context(
            TransactionProducer("TG_Why", apache.namesrv, check=lambda _message: unknown)
        )
        level = await producer.send(Message(topic, b"x", delay_time_level=18), timeout_s=60)
        timer = await producer.send(Message(topic, b"x", deliver_time_ms=SystemClock().time_ms() + 600_000))
        opened = await half.send_in_transaction(Message(topic, b"x"), lambda _message: unknown)
        other = await producer.send(Message("WhyOther", b"x"))
        stored = await producer.send(Message(topic, b"x", tags="a", keys="k"))
        for group, handler in (
            ("CG_Taken", accept),
            ("CG_Refusing", refuse),
            ("CG_Burying", bury),
        ):
            consumer = await stack.enter_async_context(PushConsumer(group, config, handler=handler))
            await consumer.subscribe(topic)
        # Two clients of this process, without traces, which would show that one has consumed it.
        for address, tag in ((apache.namesrv, "a"), (f"{apache.namesrv};127.0.0.1:1", "b")):
            consumer = await stack.enter_async_context(PushConsumer("CG_Split", address, handler=accept))
            await consumer.subscribe(topic, tag)

        async def becomes(outcome: str, group: str = "CG_Taken", **message: str) -> str:
            async with asyncio.timeout(60):
                while (found := (await why(admin, group, topic, **message)).data)["outcome"] != outcome:
                    pass
            return " ".join(found["sentences"])

        await becomes("notFound", key="none")
        await becomes("otherTopic", msg_id=other.offset_msg_id)
        await becomes("delayed", msg_id=level.msg_id)
        await becomes("delayed", msg_id=timer.msg_id)
        await becomes("halfOpen", msg_id=opened.msg_id)
        await becomes("suspended", "CG_Suspended", key="k")
        await becomes("retrying", "CG_Refusing", key="k")
        await becomes("deadLetter", "CG_Burying", key="k")
        await becomes("conflict", "CG_Split", key="k")
        assert "Owner: client" in await becomes("consumed", key="k")
        await becomes("caughtUp")
        async with asyncio.timeout(30):
            while "Trace: consumed with success" not in await becomes("consumed", msg_id=stored.msg_id):
                pass


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_client_and_producer_work_with_apaches_4_9(java: Java):
    java.server_version = "4.9.7"
    namesrv = await asyncio.to_thread(java.namesrv)
    broker = await asyncio.to_thread(java.broker, namesrv.address)
    await run_scenario(namesrv.address, broker.address)
    await run_producer_scenario(namesrv.address)


# Commands at servers of 4.9, with words that they print.
OLD_COMMANDS = (
    ("updateTopic -c DefaultCluster -t Old -r 2 -w 2", "create topic to"),
    ("updateSubGroup -c DefaultCluster -g CG_Old", "create subscription group to"),
    ("sendMessage -t Old -p hello -k key-1 -c tag", "SEND_OK"),
    ("clusterList", "V4_9_7"),
    ("topicList", "Old"),
    ("topicRoute -t Old", "broker-a"),
    ("topicStatus -t Old", "broker-a"),
    ("brokerStatus -b {broker}", "V4_9_7"),
    ("getBrokerConfig -b {broker}", "brokerName"),
    ("updateBrokerConfig -b {broker} -k fileReservedTime -v 48", "success"),
    ("getNamesrvConfig", "listenPort"),
    ("printMsg -t Old", "hello"),
    ("queryMsgByKey -t Old -k key-1", "key-1"),
    ("export Old --to -", '"topic":"Old"'),
    ("consumerProgress", "#Group"),
    ("statsAll -t Old", "Old"),
    ("updateTopicPerm -b {broker} -t Old -p 4", "success"),
    ("why CG_Old Old -k key-1", "Stored: queue"),
    ("doctor --severity error", "no faults found"),
    ("deleteSubGroup -c DefaultCluster -g CG_Old --yes", "delete subscription group"),
    ("deleteTopic -c DefaultCluster -t Old --yes", "success"),
)
# What 4.9 cannot do is said in one line.
NEWER_COMMANDS = ("haStatus -b {broker}", "popStatus -g CG_Old", "listUser -b {broker}", "listAcl -b {broker}")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_mqadmin_works_with_apaches_4_9(java: Java):
    java.server_version = "4.9.7"
    namesrv = java.namesrv()
    broker = java.broker(namesrv.address)

    def run(command: str) -> Ran:
        return run_ours([*command.format(broker=broker.address).split(), "-n", namesrv.address])

    for command, words in OLD_COMMANDS:
        ran = run(command)
        assert words in ran.out, (command, ran)
        assert not ran.failed, (command, ran)
    for command in NEWER_COMMANDS:
        ran = run(command)
        assert ran.failed, (command, ran)
        assert ran.err.startswith("mqadmin: "), (command, ran)
