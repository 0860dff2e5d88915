"""A master and its slave at a name server, over real sockets: what the slave follows, serves and gives back."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.broker.slave import slave_synchronize
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import CreateTopicRequestHeader
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.testing.clocks import ControlledClock
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.running import running, stopping
from tests.support.stores import message, read_queue
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", 0.1)


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with stopping(RemotingClient()) as made:
        yield made


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[NamesrvController]:
    async with running(NamesrvController(namesrv_settings(0, tmp_path))) as made:
        yield made


class Pair(NamedTuple):
    """Starts the brokers of one name."""

    folder: Path
    namesrv: NamesrvController
    clock: ControlledClock

    @asynccontextmanager
    async def broker(self, number: int, store: str = "", **properties: str) -> AsyncIterator[BrokerController]:
        """A running master (0) or slave on free ports, with a store of its own or a given one."""
        role = {"brokerRole": "SLAVE", "slaveReadEnable": "true"} if number else {}
        settings = broker_settings(
            0,
            self.folder / (store or f"broker-{number}"),
            self.namesrv.address,
            properties={
                "brokerId": str(number),
                "brokerIP2": "127.0.0.1",
                "mappedFileSizeCommitLog": str(1 << 20),
                **role,
                **properties,
            },
        )
        async with running(BrokerController.bind(settings, self.clock)) as broker:
            yield broker


@pytest.fixture
def pair(tmp_path: Path, namesrv: NamesrvController) -> Pair:
    return Pair(tmp_path, namesrv, ControlledClock())


def update_topic(broker: BrokerController, topic: str) -> None:
    broker.topic_configs.update(TopicConfig(topic, 4, 4))


async def offset_at(client: RemotingClient, broker: BrokerController) -> int:
    """Return the offset of group G in queue 0 of topic T that a broker answers, -1 without one."""
    header = QueryConsumerOffsetRequestHeader("G", "T", 0, set_zero_if_not_found=False)
    answer = await client.invoke(broker.address, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    if answer.code != ResponseCode.SUCCESS:
        return -1
    return int(QueryConsumerOffsetResponseHeader(offset=int((answer.header or {})["offset"])).offset)


async def commit(client: RemotingClient, broker: BrokerController, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader("G", "T", 0, offset)
    await client.invoke_oneway(broker.address, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


async def test_both_restart_in_any_order(pair: Pair):
    async with pair.broker(1) as slave:
        async with pair.broker(0) as master:
            update_topic(master, "T")
            slave.outer_api.register_all()
            await until(lambda: "T" in slave.topic_configs.topics)
        update_topic_count = len(slave.topic_configs.topics)
        async with pair.broker(0) as master:
            update_topic(master, "U")
            slave.outer_api.register_all()  # it learns the address of its master, which has changed
            await until(lambda: "U" in slave.topic_configs.topics)
            assert len(slave.topic_configs.topics) == update_topic_count + 1
            assert slave.topic_configs.data_version == master.topic_configs.data_version

    async with pair.broker(1) as slave:
        assert {"T", "U"} <= slave.topic_configs.topics.keys(), "it has them without its master"
        async with pair.broker(0) as master:
            master.topic_configs.delete("T")
            await until(lambda: "T" not in slave.topic_configs.topics)


async def test_progress_at_the_slave_returns_to_the_master(pair: Pair, client: RemotingClient):
    async with pair.broker(0) as master, pair.broker(1) as slave:
        update_topic(master, "T")
        master.subscription_groups.find("G")
        await commit(client, master, 5)
        await until(lambda: slave.consumer_offsets.query("G", "T", 0) == 5)
        await master.stop()
        await commit(client, slave, 9)
        await until(lambda: slave.consumer_offsets.query("G", "T", 0) == 9)

        async with pair.broker(0) as back:
            slave.outer_api.register_all()
            await until(lambda: back.consumer_offsets.query("G", "T", 0) == 9)
            await until(lambda: not slave.consumer_offsets.slave_commits)
            assert await offset_at(client, back) == await offset_at(client, slave) == 9


async def test_a_slave_rejects_changes(pair: Pair, client: RemotingClient):
    async with pair.broker(0), pair.broker(1) as slave:
        header = CreateTopicRequestHeader("T", "TBW102", 2, 2, 6, "SINGLE_TAG")
        answer = await client.invoke(slave.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "make the change at the master" in answer.remark
        assert "T" not in slave.topic_configs.topics


async def test_a_slave_of_another_cluster_is_rejected(pair: Pair, caplog: pytest.LogCaptureFixture):
    async with pair.broker(0), pair.broker(1, brokerClusterName="Other") as slave:
        assert slave.outer_api.registered_at() == []
        assert slave.master_address.master.address == ""
    assert "broker-a of cluster Other" in caplog.text


async def test_a_second_master_of_the_name_is_rejected(pair: Pair, caplog: pytest.LogCaptureFixture):
    async with pair.broker(0) as master:
        other = pair._replace(folder=pair.folder / "other")
        async with other.broker(0) as second, pair.broker(1) as slave:
            assert second.outer_api.registered_at() == []
            assert slave.master_address.master.address == master.address
    assert "give each broker its own brokerName, brokerId and address" in caplog.text


@pytest.mark.long
async def test_a_slave_expires_files_once_their_timer_messages_are_delivered(pair: Pair):
    settings = {"cleanResourceInterval": "50", "deleteWhen": ";".join(map(str, range(24)))}
    async with pair.broker(0, **settings, fileReservedTime="1000") as master, pair.broker(1, **settings) as slave:
        update_topic(master, "T")
        due_ms = pair.clock.time_ms() + 80 * 3_600_000
        properties = {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(due_ms)}
        put = master.store.appender.put_message
        put(message(b"timer", TIMER_TOPIC, 0, properties=properties))
        master.store.appender.dispatch()
        await until(lambda: slave.store.queues.max_offset_in_queue(TIMER_TOPIC, 0) == 1)
        for _ in range(3):
            put(message(bytes(1 << 19), "Filler"))
        master.store.appender.dispatch()
        end = master.store.commit_log.max_offset
        await until(lambda: slave.store.appender.dispatched_offset == end)
        assert len(slave.store.commit_log.queue.files) > 1

        pair.clock.advance(75 * 3600.0)  # longer than fileReservedTime
        rounds = count_calls(slave.cleaning, "clean")
        await until(lambda: rounds() > 2)
        assert slave.store.commit_log.min_offset == 0, "the message is waiting, and a promoted slave would deliver it"

        pair.clock.advance(6 * 3600.0)
        await until(lambda: master.store.queues.max_offset_in_queue("T", 0) == 1)
        await until(lambda: slave.store.commit_log.min_offset > 0)


def count_calls(part: CleanFilesService, name: str) -> Callable[[], int]:
    """Return a callable that returns the number of complete calls of a coroutine method from now on."""
    calls, method = [0], getattr(part, name)

    async def counted() -> None:
        await method()
        calls[0] += 1

    setattr(part, name, counted)
    return lambda: calls[0]


async def test_the_store_of_a_slave_serves_a_new_master(pair: Pair, client: RemotingClient):
    async with pair.broker(1) as slave, pair.broker(0) as master:
        update_topic(master, "T")
        master.subscription_groups.find("G")
        for number in range(5):
            master.store.appender.put_message(message(b"%d" % number, "T", 0))
        master.store.appender.dispatch()
        await commit(client, master, 3)
        await until(lambda: slave.store.queues.max_offset_in_queue("T", 0) == 5)
        await until(lambda: slave.consumer_offsets.query("G", "T", 0) == 3)

    async with pair.broker(0, store="broker-1") as promoted:
        assert [each.body for each in read_queue(promoted.store, "T", 0, 0)] == [b"0", b"1", b"2", b"3", b"4"]
        assert promoted.consumer_offsets.query("G", "T", 0) == 3
        promoted.store.appender.put_message(message(b"5", "T", 0))
        promoted.store.appender.dispatch()
        assert promoted.store.queues.max_offset_in_queue("T", 0) == 6
