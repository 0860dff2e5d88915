import asyncio
import gc
import json
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.broker.offset import consumer_offset_manager
from rocketbroker.broker.offset.consumer_offset_manager import (
    ConsumerOffsetManager,
    OffsetFlushService,
    OffsetRecovery,
    ResetOffsetTable,
)
from rocketbroker.broker.persist.config_manager import ConfigManager, encode_file, text_of
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common import lifecycle
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError, StoreError
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.golden_store import files
from tests.support.stores import crash_copy, make_store, message
from tests.support.waiting import until


def test_redirected_connections_that_closed_are_forgotten():
    table = ResetOffsetTable()
    table.assign("T@g", 0, 7)
    last = FakeConnection()
    for _ in range(1_000):
        assert table.redirect("T@g", 0, FakeConnection()) == 7
    assert table.redirect("T@g", 0, last) == 7
    gc.collect()
    assert len(table._resets["T@g"][0].redirected) == 1
    assert table.redirect("T@g", 0, last) is None
    assert not table


GOLDEN = files("clean")["config/consumerOffset.json"]


def make(path=Path("consumerOffset.json"), on_persist=None):
    return ConsumerOffsetManager(path, FakeClock(), on_persist)


def test_commit_and_query():
    manager = make()
    assert manager.query("g", "T", 0) == -1
    manager.commit("g", "T", 0, 7)
    manager.commit("g", "T", 1, 8)
    assert manager.query("g", "T", 0) == 7
    assert manager.query("g", "T", 2) == -1
    assert manager.query("h", "T", 0) == -1
    manager.commit("g", "T", 0, 3)
    assert manager.query("g", "T", 0) == 3
    assert manager.offsets_of("g", "T") == {0: 3, 1: 8}
    assert manager.table == {"T@g": {0: 3, 1: 8}}


@pytest.mark.parametrize("offset", [3, 7, 9])
def test_each_commit_is_written_by_the_next_flush(offset):
    persisted: list[object] = []
    manager = make(on_persist=persisted.append)
    manager.commit("g", "T", 0, 7)
    manager.flush()
    assert len(persisted) == 1
    manager.flush()
    assert len(persisted) == 1

    manager.commit("g", "T", 0, offset)
    manager.flush()

    assert len(persisted) == 2


def test_offsets_that_a_master_deleted_are_forgotten_with_those_committed_here():
    manager = make()
    manager.keep_commits()
    manager.follow({"T@g": {0: 7, 1: 8}, "T@h": {0: 9}}, None, {})
    manager.commit("g", "T", 0, 10)
    manager.commit("h", "T", 0, 10)
    manager.commit("own", "T", 0, 1)

    manager.follow({"T@g": {1: 3}}, None, {"T@g": {0: 7, 1: 8}, "T@h": {0: 9}})

    assert manager.table == {"T@g": {1: 3}, "T@own": {0: 1}}
    assert manager.slave_commits == {"T@own": {0: 1}}


def test_pull_offsets_fall_back_to_the_committed_one():
    manager = make()
    manager.commit("g", "T", 0, 7)
    assert manager.query_pull("g", "T", 0) == 7
    manager.commit_pull("g", "T", 0, 9)
    assert manager.query_pull("g", "T", 0) == 9
    assert manager.query("g", "T", 0) == 7


def test_commits_do_not_undo_a_reset_until_a_redirected_client_pulls_again():
    manager, connection = make(), FakeConnection()
    manager.commit("g", "T", 0, 90)
    manager.assign_reset("g", "T", 0, 10)
    assert manager.query("g", "T", 0) == 10
    assert not manager.commit("g", "T", 0, 95)
    assert manager.commit("g", "T", 1, 95)
    assert manager.commit("h", "T", 0, 95)
    assert manager.redirect("g", "T", 0, connection) == 10
    assert not manager.commit("g", "T", 0, 95)
    assert manager.redirect("g", "T", 1, connection) is None
    assert manager.redirect("g", "T", 0, connection) is None
    assert not manager.resets
    assert manager.commit("g", "T", 0, 12)
    assert manager.query("g", "T", 0) == 12


def test_each_client_is_reported_and_of_each_reset():
    manager, one, two = make(), FakeConnection(), FakeConnection()
    manager.assign_reset("g", "T", 0, 10)
    assert manager.redirect("g", "T", 0, one) == manager.redirect("g", "T", 0, two) == 10
    assert manager.redirect("g", "T", 0, one) is None
    assert manager.redirect("g", "T", 0, two) is None
    manager.assign_reset("g", "T", 0, 20)
    assert manager.redirect("g", "T", 0, one) == 20
    manager.assign_reset("g", "T", 0, 30)
    assert manager.redirect("g", "T", 0, one) == 30


def test_resets_survive_a_restart_and_end_with_their_group_or_topic():
    manager = make()
    assert b"resetOffsetTable" not in manager.encode()
    for group, topic in (("g", "T"), ("g", "U"), ("h", "U")):
        manager.assign_reset(group, topic, 3, 10)
    assert json.loads(manager.encode().partition(b'"resetOffsetTable":')[2][:-2]) == {
        "T@g": {"3": 10},
        "U@g": {"3": 10},
        "U@h": {"3": 10},
    }, "in standard JSON, being the last field"
    again = make()
    again.decode(manager.encode())
    assert again.resets.offsets() == {"T@g": {3: 10}, "U@g": {3: 10}, "U@h": {3: 10}}
    again.remove_topic("T")
    again.remove_group("h")
    assert again.resets.offsets() == {"U@g": {3: 10}}


def test_a_reset_is_set_back_with_the_offset():
    manager = make()
    manager.assign_reset("g", "T", 0, 10)
    assert len(manager.set_back(lambda _topic, _queue_id: 7)) == 1
    assert manager.redirect("g", "T", 0, FakeConnection()) == 7
    assert manager.query("g", "T", 0) == 7


def test_offsets_for_the_master_are_set_back_too_and_a_master_forgets_them():
    manager = make()
    manager.keep_commits()
    manager.commit("g", "T", 0, 10)

    manager.set_back(lambda _topic, _queue_id: 7)
    assert manager.slave_commits == {"T@g": {0: 7}}

    manager.forget_slave_commits()
    assert manager.slave_commits == {}


def test_a_master_takes_over_offsets_that_are_ahead():
    manager = make()
    manager.commit("g", "T", 0, 5)
    manager.commit("g", "T", 1, 5)
    ends = {0: 10, 1: 10, 2: 3}

    count = manager.take_over({"T@g": {0: 7, 1: 4, 2: 4}, "U@h": {0: 1}}, lambda _topic, queue_id: ends[queue_id])

    assert count == 2
    assert manager.table == {"T@g": {0: 7, 1: 5}, "U@h": {0: 1}}
    assert manager.slave_commits == {}


def test_a_reset_outlives_the_offsets_of_a_slave():
    manager = make()
    manager.commit("g", "T", 0, 5)
    manager.assign_reset("g", "T", 0, 2)

    assert manager.take_over({"T@g": {0: 5}}, lambda _topic, _queue_id: 10) == 0
    assert manager.table == {"T@g": {0: 2}}


def test_names_that_contain_each_other():
    manager = make()
    for group, topic in (("g", "T"), ("gg", "T"), ("g", "TT"), ("T", "g")):
        manager.commit(group, topic, 0, 1)
    assert manager.topics_of("g") == {"T", "TT"}
    assert manager.groups_of("T") == {"g", "gg"}
    manager.remove_group("g")
    assert manager.table.keys() == {"T@gg", "g@T"}
    manager.remove_topic("T")
    assert manager.table.keys() == {"g@T"}


def test_flush_persists_only_what_changed():
    submitted: list[ConfigManager] = []
    manager = make(on_persist=submitted.append)
    manager.flush()
    assert submitted == []
    manager.commit("g", "T", 0, 5)
    manager.flush()
    manager.flush()
    assert submitted == [manager]


def test_recorded_file(tmp_path):
    manager = make()
    manager.decode(GOLDEN)
    assert manager.offsets_of("CG_StPlain", "StPlain") == {0: 2, 1: 2, 2: 1, 3: 1}
    again = make()
    again.decode(manager.encode())
    assert (again.table, again.pull_table, again.data_version) == (
        manager.table,
        manager.pull_table,
        manager.data_version,
    )
    # Only the order of groupTopicMap is Java's hash order.
    assert sorted(manager.encode().replace(b",", b"").splitlines()) == sorted(GOLDEN.replace(b",", b"").splitlines())


def test_file_is_what_the_general_encoder_writes():
    manager = make()
    assert manager.encode() == encode_file(ConsumerOffsetSerializeWrapper({}, manager.data_version, {}, {}))
    manager.commit("g", "T", 0, 1)
    manager.commit("g", "T", 7, 2**62)
    manager.commit("g", "%RETRY%g", 0, -1)
    manager.commit("h", 'odd"\\\u00e4', 0, 5)
    manager.commit_pull("h", "T", 1, 6)
    wrapper = ConsumerOffsetSerializeWrapper(
        manager.table, manager.data_version, manager.pull_table, manager.group_topic_map()
    )
    assert manager.encode() == encode_file(wrapper)


@pytest.mark.parametrize("content", [b'{"offsetTable":{"T@g":{"x":1}}}', b'{"offsetTable":{"T@g":{0:"x"}}}', b"[]"])
def test_damaged_file(tmp_path, content):
    manager = make(tmp_path / "consumerOffset.json")
    manager.path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"consumerOffset\.json is damaged"):
        manager.load()
    assert manager.table == {}


NAMES = st.text("abcT%_-|0", min_size=1, max_size=8)


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 65535), st.integers(-1, 2**63 - 1)), max_size=20))
def test_round_trip(commits):
    manager = make()
    for group, topic, queue_id, offset in commits:
        manager.commit(group, topic, queue_id, offset)
    loaded = make()
    loaded.decode(manager.encode())
    assert loaded.table == manager.table
    for group, topic, queue_id, _ in commits:
        assert loaded.query(group, topic, queue_id) == manager.query(group, topic, queue_id)


def test_the_loop_only_copies_the_tables(monkeypatch):
    manager = make()
    manager.commit("g", "T", 0, 7)
    manager.commit_pull("g", "T", 0, 8)
    before = manager.encode()
    made: list[str] = []

    def text(value: str) -> str:
        made.append(value)
        return text_of(value)

    monkeypatch.setattr(consumer_offset_manager, "text_of", text)

    encode = manager.encoder()

    assert made == []
    manager.commit("g", "T", 0, 9)
    manager.commit("h", "U", 1, 10)
    manager.commit_pull("g", "T", 1, 11)
    assert encode() == before
    assert made != []


def test_offsets_beyond_the_limit_are_rejected(tmp_path, caplog):
    config = BrokerConfig(max_consumer_offset_nums=1_000)
    manager = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), None, config)
    for queue_id in range(500):
        manager.commit("g", "T", queue_id, 1)
        manager.commit_pull("g", "T", queue_id, 1)
    with pytest.raises(BrokerResponseError) as error:
        manager.commit("g", "T", 500, 1)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert error.value.remark.startswith("maxConsumerOffsetNums: 1,000 consumer offsets reach the limit of 1,000")
    with pytest.raises(BrokerResponseError):
        manager.commit("g", "T", 501, 1)
    assert caplog.text.count("group g cannot commit its first offset in topic T: maxConsumerOffsetNums") == 1
    manager.commit_pull("h", "T", 0, 1)
    assert list(manager.pull_table) == list(manager.table) == ["T@g"]
    assert manager.commit("g", "T", 7, 2)
    manager.assign_reset("by an administrator", "T", 0, 1)

    loaded = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), None, config)
    loaded.decode(manager.encode())
    with pytest.raises(BrokerResponseError):
        loaded.commit("h", "T", 0, 1)
    loaded.remove_group("g")
    assert loaded.commit("h", "T", 0, 1)


def test_an_address_leaves_offsets_to_the_next(tmp_path):
    config, clock = BrokerConfig(max_consumer_offset_nums=1_000), FakeClock()
    manager = ConsumerOffsetManager(tmp_path / "consumerOffset.json", clock, None, config)
    for queue_id in range(250):
        manager.commit("g", "T", queue_id, 1, b"a")
        manager.commit_pull("g", "T", queue_id, 1, b"a")
    with pytest.raises(BrokerResponseError, match="maxConsumerOffsetNums"):
        manager.commit("g", "T", 250, 1, b"a")
    manager.commit_pull("g", "T", 250, 1, b"a")
    assert len(manager.pull_table["T@g"]) == 250
    assert manager.commit("g", "T", 7, 2, b"a"), "not a first one"
    assert manager.commit("lawful", "T", 0, 1, b"b")
    assert manager.commit("of the broker", "T", 0, 1)
    # A client that creates and deletes for days is not rejected for ever.
    clock.advance(86_400)
    assert manager.commit("g", "T", 250, 1, b"a")


@pytest.mark.proves("What is promised", "a new message and the committed offsets")
@pytest.mark.proves("When the store is opened", "4. consumer offsets")
@pytest.mark.parametrize("clean", [True, False])
async def test_offsets_behind_the_end_are_set_back_however_the_last_broker_ended(tmp_path: Path, caplog, clean: bool):
    store = make_store(tmp_path / "store")
    await store.start()
    for queue_id in (0, 0, 0, 1):
        store.appender.put_message(message(queue_id=queue_id))
    store.appender.dispatch()
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    store = make_store(tmp_path / ("store" if clean else "killed"))
    await store.start()
    persisted: list[object] = []
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), persisted.append)
    for queue_id, offset in ((0, 5), (1, 1), (2, 7)):
        offsets.commit("G", "Topic", queue_id, offset)
    offsets.commit_pull("B", "Topic", 0, 4)
    offsets.flush()
    persisted.clear()

    drained: list[int] = []

    async def drain() -> Collection[Path]:
        drained.append(len(persisted))
        return ()

    await OffsetRecovery(offsets, store.queues, drain).start()

    assert offsets.offsets_of("G", "Topic") == {0: 3, 1: 1, 2: 0}
    assert offsets.query_pull("B", "Topic", 0) == 3
    assert drained == [1], "it is on disk before anything else comes"
    told = [record.getMessage() for record in caplog.records if "is set back" in record.getMessage()]
    assert len(told) == 3
    assert "the offset of group G in topic Topic, queue 0, is set back from 5 to 3" in told[0]
    await store.stop()


async def test_a_disk_that_refuses_the_table_ends_the_start_and_the_next_one_sets_back(tmp_path: Path):
    store = make_store(tmp_path / "store")
    await store.start()
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    store = make_store(tmp_path / "killed")
    await store.start()
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())
    offsets.commit("G", "Topic", 0, 5)

    async def drain() -> Collection[Path]:
        return {offsets.path}

    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be written, where 1 offsets had to be set back"):
        await OffsetRecovery(offsets, store.queues, drain).start()
    await store.stop()

    again = make_store(tmp_path / "killed")
    await again.start()
    offsets.commit("G", "Topic", 0, 5)
    await OffsetRecovery(offsets, again.queues, nothing_to_wait_for).start()
    assert offsets.query("G", "Topic", 0) == 0
    await again.stop()


async def nothing_to_wait_for() -> Collection[Path]:
    return ()


def counter():
    table = SimpleNamespace(flushes=0)

    def flush():
        table.flushes += 1

    table.flush = flush
    return table


async def test_flushes_by_interval_and_at_the_end():
    consumer, delay = counter(), counter()
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", flush_consumer_offset_interval=100)
    service = OffsetFlushService(consumer, delay, config, MessageStoreConfig(flush_delay_offset_interval=60_000))
    await service.start()
    async with asyncio.timeout(60):
        while consumer.flushes < 2:  # noqa: ASYNC110 - a timer tells nobody
            await asyncio.sleep(0.01)
    assert delay.flushes == 0
    before = consumer.flushes
    await service.stop()
    assert (consumer.flushes, delay.flushes) == (before + 1, 1)


async def test_an_error_that_nobody_foresaw_ends_no_flushing(caplog, monkeypatch):
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.0)
    consumer, delay = counter(), counter()
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", flush_consumer_offset_interval=100)
    flushed = []

    def flush():
        flushed.append(1)
        if len(flushed) == 1:
            raise RuntimeError("dictionary changed size during iteration")

    consumer.flush = flush
    service = OffsetFlushService(consumer, delay, config, MessageStoreConfig(flush_delay_offset_interval=60_000))
    await service.start()
    await until(lambda: len(flushed) > 1)
    await service.stop()
    assert "OffsetFlushService.consumer offsets failed" in caplog.text
