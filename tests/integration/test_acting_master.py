"""A slave that acts as master over real sockets, until its master is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.broker.slave import slave_synchronize
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.client import ClientConfig, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.codec.message.message_const import TRANSACTION_COMMIT_TYPE
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from rocketbroker.codec.remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.lifecycle import TICK_S
from rocketbroker.testing.clocks import ControlledClock
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.running import running
from tests.support.stores import message, read_queue
from tests.support.waiting import until

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", 0.1)


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[NamesrvController]:
    settings = namesrv_settings(0, tmp_path)
    config = settings.namesrv.model_copy(update={"support_acting_master": True, "notify_min_broker_id_changed": True})
    async with running(NamesrvController(replace(settings, namesrv=config))) as made:
        yield made


class Cluster(NamedTuple):
    """Starts brokers of one cluster, all by one clock."""

    folder: Path
    namesrv: NamesrvController
    clock: ControlledClock

    @asynccontextmanager
    async def broker(self, number: int, name: str = "broker-a", **properties: str) -> AsyncIterator[BrokerController]:
        """A running master (0) or slave."""
        role = {"brokerRole": "SLAVE"} if number else {}
        settings = broker_settings(
            0,
            self.folder / f"{name}-{number}",
            self.namesrv.address,
            name=name,
            properties={
                "brokerId": str(number),
                "brokerIP2": "127.0.0.1",
                "mappedFileSizeCommitLog": str(1 << 20),
                "slaveReadEnable": "true",
                "enableSlaveActingMaster": "true",
                **role,
                **properties,
            },
        )
        async with running(BrokerController.bind(settings, self.clock)) as broker:
            yield broker

    def seen(self, topic: str, name: str = "broker-a") -> tuple[dict[int, str], int]:
        """Return addresses and permission of a broker in a route, as clients see them."""
        route = self.namesrv.route_info_manager.routes.pickup(topic)
        if route is None:
            return {}, 0
        addresses = {each.broker_name: each.broker_addrs for each in route.broker_datas}
        perms = {each.broker_name: each.perm for each in route.queue_datas}
        return addresses.get(name, {}), perms.get(name, 0)

    def in_ms(self, milliseconds: int) -> int:
        """Return a time from now."""
        return self.clock.time_ms() + milliseconds

    @property
    def client(self) -> ClientConfig:
        return ClientConfig(self.namesrv.address, poll_name_server_interval_s=0.2)


@pytest.fixture
def cluster(tmp_path: Path, namesrv: NamesrvController) -> Cluster:
    return Cluster(tmp_path, namesrv, ControlledClock())


def put(broker: BrokerController, *bodies: bytes) -> None:
    for body in bodies:
        broker.store.appender.put_message(message(body, "T", 0))
    broker.store.appender.dispatch()


async def copied(slave: BrokerController, topic: str, count: int, queue_id: int = 0) -> None:
    await until(lambda: slave.store.queues.max_offset_in_queue(topic, queue_id) == count)
    await until(lambda: topic in slave.topic_configs.topics)


async def consume(cluster: Cluster, count: int) -> list[bytes]:
    """Return what a new member of an orderly group gets."""
    got: list[bytes] = []

    async def handle(each: ReceivedMessage) -> None:
        got.append(bytes(each.body))

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with PushConsumer("G", cluster.client, handler=handle, orderly=True, consume_from_where=first) as consumer:
        await consumer.subscribe("T")
        await until(lambda: len(got) >= count)
    return got


async def test_an_orderly_group_goes_on_at_the_acting_master_and_its_progress_returns(cluster: Cluster):
    async with cluster.broker(0) as master, cluster.broker(1) as slave:
        master.topic_configs.update(TopicConfig("T", 1, 1))
        put(master, *TEN)
        await copied(slave, "T", len(TEN))
        assert not slave.acting.state.is_acting
        await master.stop()

        await until(lambda: slave.acting.state.is_acting)
        assert cluster.seen("T") == ({0: slave.address}, PERM_READ)
        assert await consume(cluster, len(TEN)) == TEN
        await until(lambda: slave.consumer_offsets.query("G", "T", 0) == len(TEN))

        async with cluster.broker(0) as back:
            assert back.consumer_offsets.query("G", "T", 0) == len(TEN), "it has the progress before it is registered"
            await until(lambda: not slave.acting.state.is_acting)
            await until(lambda: cluster.seen("T")[1] == PERM_READ | PERM_WRITE)
            assert cluster.seen("T")[0] == {0: back.address, 1: slave.address}
            put(back, b"new")
            assert await consume(cluster, 1) == [b"new"]
            await until(lambda: slave.replication.client.problem == "")
            await copied(slave, "T", len(TEN) + 1)


@pytest.mark.long
async def test_delayed_messages_wait_for_the_master(cluster: Cluster):
    async with cluster.broker(0) as master, cluster.broker(1) as slave:
        async with Producer("PG", cluster.client) as producer:
            await producer.send(Message("T", b"delayed", delay_time_level=5))
        await copied(slave, RMQ_SYS_SCHEDULE_TOPIC, 1, 4)
        async with cluster.broker(0, name="broker-b") as other:
            other.topic_configs.update(TopicConfig("T", 1, 1))
            await until(lambda: cluster.seen("T", "broker-b")[1] == PERM_READ | PERM_WRITE)
            await master.stop()
            await until(lambda: slave.acting.state.is_acting)
            cluster.clock.advance(60.0)
            # Time for several turns of a delivery, if one ran.
            await asyncio.sleep(5 * TICK_S)
            for broker in (slave, other):
                assert broker.store.queues.max_offset_in_queue("T", 0) == 0
            assert slave.schedule.offset_table == {}

        async with cluster.broker(0) as back:
            await until(lambda: bool(back.store.queues.queues_of("T")))
            [queue] = back.store.queues.queues_of("T")
            assert [each.body for each in read_queue(back.store, "T", queue, 0)] == [b"delayed"]


@pytest.mark.long
async def test_popped_messages_wait_for_the_master(cluster: Cluster):
    """The slave has the records of what is in flight, and pops nothing."""
    client = RemotingClient()

    async def pop(broker: BrokerController) -> Command:
        header = PopMessageRequestHeader("G", "T", 0, 1, 30_000, 0, cluster.in_ms(0), 0)
        return await client.invoke(broker.address, request(RequestCode.POP_MESSAGE, header))

    try:
        async with cluster.broker(0) as master, cluster.broker(1) as slave:
            master.topic_configs.update(TopicConfig("T", 1, 1))
            put(master, b"one")
            assert (await pop(master)).code == ResponseCode.SUCCESS
            await copied(slave, TIMER_TOPIC, 1)
            await master.stop()
            await until(lambda: slave.acting.state.is_acting)
            cluster.clock.advance(60.0)
            refused = await pop(slave)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert refused.remark == "this broker is a slave, at which nothing is popped; pop at the master"
            acknowledgement = AckMessageRequestHeader("G", "T", 0, "0 1 30000 0 0 broker-a 0 0", 0)
            answer = await client.invoke(slave.address, request(RequestCode.ACK_MESSAGE, acknowledgement))
            assert answer.code == ResponseCode.SYSTEM_BUSY

            async with cluster.broker(0) as back:
                await until(lambda: back.store.queues.max_offset_in_queue("%RETRY%G_T", 0) == 1)
                returned = await pop(back)
                (one,) = decode_messages(bytes(returned.body))
                assert (one.body, one.reconsume_times) == (b"one", 1)
    finally:
        await client.stop()


@pytest.mark.long
async def test_due_messages_and_open_transactions_escape_to_another_master_and_are_not_delivered_again(
    cluster: Cluster,
):
    escape = {"enableRemoteEscape": "true", "transactionCheckInterval": "1000"}
    async with cluster.broker(1, **escape) as slave, cluster.broker(0, name="broker-b") as other:
        async with cluster.broker(0) as master:
            for broker in (master, other):
                broker.topic_configs.update(TopicConfig("T", 1, 1))
            properties = {"REAL_TOPIC": "T", "REAL_QID": "0"}
            half = {**properties, "TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U3"}
            retried = {**properties, "DELAY": "5", "TRAN_MSG": "true", "PGROUP": "PG"}
            for each in (
                message(b"delayed", RMQ_SYS_SCHEDULE_TOPIC, 4, properties={**properties, "DELAY": "5"}),
                message(
                    b"retried",
                    RMQ_SYS_SCHEDULE_TOPIC,
                    4,
                    properties=retried,
                    sys_flag=TRANSACTION_COMMIT_TYPE,
                    reconsume_times=1,
                ),
                message(
                    b"timer", TIMER_TOPIC, 0, properties={**properties, "TIMER_OUT_MS": str(cluster.in_ms(50_000))}
                ),
                message(b"half", RMQ_SYS_TRANS_HALF_TOPIC, 0, properties=half),
            ):
                master.store.appender.put_message(each)
            master.store.appender.dispatch()
            await copied(slave, RMQ_SYS_TRANS_HALF_TOPIC, 1)
            await until(lambda: "T" in slave.topic_configs.topics)

        await until(lambda: slave.acting.state.is_acting)
        cluster.clock.advance(70.0)
        await until(lambda: other.store.queues.max_offset_in_queue("T", 0) == 3)
        await until(lambda: other.store.queues.max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, 0) == 1)
        assert {each.body for each in read_queue(other.store, "T", 0, 0)} == {b"delayed", b"retried", b"timer"}
        [sent] = read_queue(other.store, RMQ_SYS_TRANS_HALF_TOPIC, 0, 0)
        assert (sent.body, sent.get_property("REAL_TOPIC"), sent.get_property("PGROUP")) == (b"half", "T", "PG")
        assert slave.store.queues.max_offset_in_queue("T", 0) == 0
        # The other master may have stored them before its answers arrive.
        await until(lambda: slave.schedule.offset_table == {5: 2})
        await until(lambda: bool(slave.timer.progress.delivered))
        await until(lambda: slave.transactions.half_offsets.position == 1)

        async with cluster.broker(0, transactionCheckInterval="1000", transactionTimeOut="0") as back:
            assert back.schedule.offset_table == {5: 2}
            assert back.timer.checkpoint().last_timer_queue_offset == 1
            assert back.transactions.half_offsets.position == 1
            await until(lambda: not slave.acting.state.is_acting)
            cluster.clock.advance(10.0)
            put(back, b"new")
            await until(lambda: [each.body for each in read_queue(back.store, "T", 0, 0)] == [b"new"])
            assert other.store.queues.max_offset_in_queue("T", 0) == 3
