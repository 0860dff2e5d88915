import asyncio
import itertools

import pytest

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.persist.config_manager import ConfigManager
from rocketbroker.broker.schedule_message_service import BATCH, LEAST_PAUSE_S, ScheduleMessageService, delay_rewrite
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common import open_files
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError, ConfigError
from rocketbroker.common.lifecycle import TICK_S
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.damage import overwrite
from tests.support.fakes import FakeClock
from tests.support.golden_store import files
from tests.support.running import running
from tests.support.stores import read_queue


def message(delay=None, sys_flag=0):
    properties = {"TAGS": "TagA"} if delay is None else {"TAGS": "TagA", "DELAY": delay}
    return MessageExtBrokerInner("T", 3, b"body", encode_properties(properties), sys_flag=sys_flag)


@pytest.mark.parametrize(("delay", "level"), [("1", 1), ("18", 18), ("19", 18), ("4000000000", 18), ("007", 7)])
def test_delayed(delay, level):
    delayed = message(delay)
    delay_rewrite(delayed, 18)
    assert (delayed.topic, delayed.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    properties = decode_properties(delayed.properties)
    assert int(properties.pop("DELAY")) == level
    assert properties == {"TAGS": "TagA", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(("delay", "sys_flag"), [(None, 0), ("0", 0), ("-1", 0), ("3", 4), ("3", 12)])
def test_not_delayed(delay, sys_flag):
    plain = message(delay, sys_flag)
    delay_rewrite(plain, 18)
    assert plain == message(delay, sys_flag)


def test_committed_message_is_delayed():
    delayed = message("3", sys_flag=8)
    delay_rewrite(delayed, 18)
    assert delayed.topic == "SCHEDULE_TOPIC_XXXX"


def test_clients_cannot_set_the_destination():
    forged = message("1")
    forged.properties += encode_properties({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "99"})
    delay_rewrite(forged, 18)
    properties = decode_properties(forged.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "3")


@pytest.mark.proves(
    "Delayed messages",
    "a delay level or delivery time out of range, or not a number; a level above the highest is the highest",
)
@pytest.mark.parametrize("delay", ["x", "1s", "--1", "1.5", "9" * 11, "\u0661", " 1"])
def test_level_that_is_no_number(delay):
    with pytest.raises(BrokerResponseError, match="DELAY") as error:
        delay_rewrite(message(delay), 18)
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL


STORE_HOST = host_bytes("127.0.0.1", 10911)
LEVELS = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
GOLDEN = files("clean")["config/delayOffset.json"]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(tmp_path, clock):
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    found = MessageStore(config, STORE_HOST, NoListener(), clock)
    await found.start()
    yield found
    await found.stop()


def make(tmp_path, store, clock, on_persist=None, levels=LEVELS, **deliveries):
    stats = BrokerStatsManager(clock, "C")
    return ScheduleMessageService(
        tmp_path / "delayOffset.json",
        CopyDelivery(store.appender, store.entry_reader, stats, STORE_HOST, **deliveries),
        store.queues,
        store.flusher,
        delay_levels=levels,
        clock=clock,
        on_persist=on_persist,
    )


@pytest.fixture
def service(tmp_path, store, clock):
    return make(tmp_path, store, clock)


def put(store, level, topic="T", body=b"body", **properties):
    message = MessageExtBrokerInner(topic, 1, body, encode_properties({"TAGS": "A", "DELAY": str(level), **properties}))
    message.reconsume_times = 2
    message.born_timestamp = 1
    delay_rewrite(message, 18)
    assert store.appender.put_message(message).status is PutMessageStatus.PUT_OK
    store.appender.dispatch()


def delivered(store, topic="T", queue_id=1):
    return read_queue(store, topic, queue_id)


async def wait_to_the_moment(service, store, clock, seconds):
    """Deliver what is due after so many seconds, of which nothing comes a millisecond earlier."""
    clock.advance(seconds - 0.001)
    await service.deliver_due()
    assert delivered(store) == []
    clock.advance(0.001)
    await service.deliver_due()


async def test_the_progress_of_a_master_takes_no_level_back_within_its_queue(service, store):
    for level in (1, 1, 3):
        put(store, level)
    service.offset_table = {1: 2, 3: 9}

    service.follow(DelayOffsetSerializeWrapper({1: 1}))
    assert service.offset_table == {1: 2}, "9 is beyond the queue"
    service.follow(DelayOffsetSerializeWrapper())
    assert service.offset_table == {1: 2}
    service.follow(DelayOffsetSerializeWrapper({1: 5, 3: 1}))
    assert service.offset_table == {1: 5, 3: 1}


async def test_nothing_is_delivered_while_another_broker_may_deliver(tmp_path, store, clock):
    put(store, 1)
    clock.advance(10)
    may_deliver = False
    service = make(tmp_path, store, clock, may_deliver=lambda: may_deliver)
    await service.deliver_due()
    assert delivered(store) == []
    may_deliver = True
    await service.deliver_due()
    assert len(delivered(store)) == 1


async def test_delivery_when_due_and_not_before(service, store, clock):
    put(store, 2)
    clock.advance(4.999)
    assert await service.deliver_due() > 0
    assert delivered(store) == []
    clock.advance(0.001)
    await service.deliver_due()
    (message,) = delivered(store)
    # As in RocketMQ, the delivered copy keeps DELAY and where it was to go.
    assert message.properties == {"TAGS": "A", "DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "1"}
    assert (message.body, message.reconsume_times, message.born_timestamp) == (b"body", 2, 1)
    assert message.store_timestamp == clock.time_ms()
    assert service.offset_table == {2: 1}
    clock.advance(100)
    await service.deliver_due()
    assert len(delivered(store)) == 1


async def test_levels_are_independent_and_in_order(service, store, clock):
    for level, number in itertools.product((3, 1, 2), range(3)):
        put(store, level, body=b"%d-%d" % (level, number))
    clock.advance(1)
    await service.deliver_due()
    assert [message.body for message in delivered(store)] == [b"1-0", b"1-1", b"1-2"]
    clock.advance(9)
    await service.deliver_due()
    assert [message.body for message in delivered(store)][3:] == [b"2-0", b"2-1", b"2-2", b"3-0", b"3-1", b"3-2"]
    assert service.runtime_info() == {f"scheduleMessageOffset_{level}": "3,3" for level in (1, 2, 3)}


async def test_many_due_messages_come_in_batches(service, store, clock):
    for number in range(BATCH + 1):
        put(store, 1, body=b"%d" % number)
    clock.advance(1)
    assert await service.deliver_due() == 0
    assert len(delivered(store)) == BATCH
    assert await service.deliver_due() == 0
    assert await service.deliver_due() == TICK_S
    assert [message.body for message in delivered(store)] == [b"%d" % number for number in range(BATCH + 1)]


@pytest.mark.proves("Delayed messages", "a clock that jumps, forward and back")
async def test_a_clock_that_is_set_back_delivers_nothing_early_and_holds_up_nothing_longer_than_the_delay(
    service, store, clock
):
    put(store, 3, body=b"before")
    clock.advance(-3600)
    put(store, 3, body=b"after")
    await service.deliver_due()
    await wait_to_the_moment(service, store, clock, 10)
    assert [message.body for message in delivered(store)] == [b"before", b"after"]


async def test_each_step_back_of_the_clock_restarts_the_wait(service, store, clock):
    put(store, 3)
    for _ in range(3):
        clock.advance(-60)
        await service.deliver_due()
        clock.advance(9)
        await service.deliver_due()
    assert delivered(store) == []
    clock.advance(1)
    await service.deliver_due()
    assert len(delivered(store)) == 1


async def test_a_restart_restarts_the_wait_after_a_step_back(tmp_path, service, store, clock):
    put(store, 3)
    clock.advance(-3600)
    await service.deliver_due()
    clock.advance(9)
    again = make(tmp_path, store, clock)
    await again.deliver_due()
    await wait_to_the_moment(again, store, clock, 10)
    assert len(delivered(store)) == 1


async def test_a_clock_set_back_does_not_delay_messages_after_a_due_one(service, store, clock):
    put(store, 17, body=b"first")
    await service.deliver_due()
    clock.advance(50 * 60)
    put(store, 17, body=b"second")
    await service.deliver_due()
    clock.advance(-25 * 60)
    await service.deliver_due()
    clock.advance(3599.999)
    await service.deliver_due()
    assert [message.body for message in delivered(store)] == [b"first"]
    clock.advance(0.001)
    await service.deliver_due()
    assert [message.body for message in delivered(store)] == [b"first", b"second"]


async def test_a_clock_that_is_corrected_as_it_runs_has_nothing_wait_longer(service, store, clock):
    put(store, 3)
    clock.advance(-60)
    await service.deliver_due()
    for _ in range(10):
        clock.advance(1)
        await service.deliver_due()
        clock.advance(-0.005)
        await service.deliver_due()
    assert delivered(store) == []
    clock.advance(0.05)
    await service.deliver_due()
    assert len(delivered(store)) == 1


@pytest.mark.proves("Delayed messages", "a clock that jumps, forward and back")
async def test_a_clock_that_jumps_forward_delivers_each_message_once(service, store, clock):
    for level in (1, 18):
        put(store, level)
    clock.advance(7200)
    await service.deliver_due()
    clock.advance(-7200)
    await service.deliver_due()
    assert len(delivered(store)) == 2


@pytest.mark.proves("Delayed messages", "`messageDelayLevel` changed while messages wait")
async def test_a_shorter_delay_holds_for_what_waits(tmp_path, store, clock):
    put(store, 18)
    service = make(tmp_path, store, clock, levels=dict.fromkeys(range(1, 19), 5000))
    await service.deliver_due()
    await wait_to_the_moment(service, store, clock, 5)
    assert len(delivered(store)) == 1


async def test_a_shorter_delay_counts_from_the_start_on_also_after_one_that_is_due_sooner(tmp_path, store, clock):
    put(store, 18, body=b"first")
    clock.advance(7197)
    put(store, 18, body=b"second")
    service = make(tmp_path, store, clock, levels=dict.fromkeys(range(1, 19), 5000))
    await service.deliver_due()
    clock.advance(3)
    await service.deliver_due()
    assert [message.body for message in delivered(store)] == [b"first"]
    clock.advance(2)
    await service.deliver_due()
    assert [message.body for message in delivered(store)] == [b"first", b"second"]


@pytest.mark.proves("Delayed messages", "`messageDelayLevel` changed while messages wait")
@pytest.mark.parametrize("longest_ms", [60_000, 10_000])
async def test_messages_of_a_level_that_is_no_more_are_delivered(tmp_path, store, clock, longest_ms):
    put(store, 4)
    service = make(tmp_path, store, clock, levels={1: longest_ms})
    await service.deliver_due()
    await wait_to_the_moment(service, store, clock, 30)
    assert len(delivered(store)) == 1
    assert service.offset_table == {4: 1}


async def test_it_looks_again_when_the_next_message_is_due(service, store, clock):
    assert await service.deliver_due() == TICK_S
    put(store, 1)
    assert await service.deliver_due() == TICK_S
    clock.advance(0.98)
    assert await service.deliver_due() == pytest.approx(0.02)
    clock.advance(0.019)
    assert await service.deliver_due() == LEAST_PAUSE_S


@pytest.mark.proves(
    "Delayed messages",
    "all 18 levels, up to 2 h; progress in `delayOffset.json`; nothing twice after a clean restart",
)
async def test_a_restart_delivers_what_waits_and_nothing_twice(tmp_path, service, store, clock):
    put(store, 1, body=b"first")
    put(store, 2, body=b"second")
    clock.advance(1)
    await service.deliver_due()
    await service.stop()
    (tmp_path / "delayOffset.json").write_bytes(service.encode())
    again = make(tmp_path, store, clock)
    again.load()
    clock.advance(4)
    await again.deliver_due()
    assert [message.body for message in delivered(store)] == [b"first", b"second"]


async def test_the_oldest_message_that_waits_is_known(service, store, clock):
    assert service.first_pending_offset() is None
    put(store, 2)
    later = store.commit_log.max_offset
    put(store, 3)
    assert service.first_pending_offset() == 0
    clock.advance(5)
    await service.deliver_due()
    assert service.first_pending_offset() == later


async def test_progress_is_written_and_taken_up_again(tmp_path, service, store, clock):
    put(store, 1)
    put(store, 3)
    clock.advance(1)
    await service.deliver_due()
    store.flusher.flush()
    service.flush()
    service.path.write_bytes(service.encode())
    again = make(tmp_path, store, clock)
    assert again.load()
    assert again.offset_table == {1: 1}
    clock.advance(9)
    await again.deliver_due()
    assert len(delivered(store)) == 2
    assert again.offset_table == {1: 1, 3: 1}


@pytest.mark.proves("When the store is opened", "6. delayed messages")
async def test_stale_progress_delivers_again_and_loses_nothing(tmp_path, service, store, clock):
    put(store, 1)
    clock.advance(1)
    await service.deliver_due()
    await make(tmp_path, store, clock).deliver_due()
    assert len(delivered(store)) == 2


@pytest.mark.parametrize("content", [b"{}", b'{"dataVersion":{}}', bytes(64)])
def test_a_file_without_progress_in_it_is_damaged(tmp_path, store, clock, content):
    (tmp_path / "delayOffset.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"delayOffset\.json is damaged"):
        make(tmp_path, store, clock).load()


async def test_flush_persists_only_progress(tmp_path, store, clock):
    submitted: list[ConfigManager] = []
    service = make(tmp_path, store, clock, submitted.append)
    service.flush()
    put(store, 1)
    clock.advance(1)
    await service.deliver_due()
    store.flusher.flush()
    service.flush()
    service.flush()
    assert submitted == [service]


@pytest.mark.parametrize(("offset", "corrected"), [(0, 0), (2, 2), (3, 2), (2**40, 2)])
async def test_progress_outside_of_the_queue_is_corrected(service, store, offset, corrected):
    put(store, 1)
    put(store, 1)
    service.offset_table = {1: offset}
    service.correct_delay_offset()
    assert service.offset_table == {1: corrected}


async def test_a_level_whose_queue_is_gone_restarts(tmp_path, store, clock):
    (tmp_path / "delayOffset.json").write_bytes(b'{"offsetTable":{1:7}}')
    service = make(tmp_path, store, clock)
    service.load()
    service.correct_delay_offset()
    put(store, 1)
    clock.advance(1)
    await service.deliver_due()
    assert len(delivered(store)) == 1


async def test_messages_may_go_to_another_master(tmp_path, store, clock):
    sent: list[tuple[str, int]] = []
    status = PutMessageStatus.SLAVE

    async def send(message: MessageExtBrokerInner) -> PutMessageResult:
        await asyncio.sleep(0)
        sent.append((message.topic, message.queue_id))
        return PutMessageResult(status)

    service = make(tmp_path, store, clock, put=send)
    put(store, 1)
    put(store, 1)
    clock.advance(1)
    await service.deliver_due()
    assert (sent, service.offset_table) == ([("T", 1)], {}), "the first one waits, and the other one behind it"

    status = PutMessageStatus.PUT_OK
    await service.deliver_due()
    assert (len(sent), service.offset_table, delivered(store)) == (3, {1: 2}, [])


async def test_full_disk_is_waited_for(service, store, clock, monkeypatch):
    put(store, 1)
    clock.advance(1)
    with monkeypatch.context() as patched:
        full = PutMessageResult(PutMessageStatus.DISK_FULL, reason="no room")
        patched.setattr(store.appender, "put_copy", lambda _: full)
        await service.deliver_due()
        assert (delivered(store), service.offset_table) == ([], {})
    await service.deliver_due()
    assert (len(delivered(store)), service.offset_table) == (1, {1: 1})


@pytest.fixture
def full_mappings(monkeypatch):
    """Let no queue map a further file, until the dict says otherwise."""
    limits = {"mapped": 1 << 20}
    monkeypatch.setattr(open_files.MAPPINGS, "_known", 0)
    monkeypatch.setattr(open_files, "max_map_count", lambda: 1 << 20)
    monkeypatch.setattr(open_files, "mapped_count", lambda: limits["mapped"])
    return limits


async def test_messages_behind_one_whose_queue_has_no_room_are_delivered(
    tmp_path, service, store, clock, full_mappings, caplog
):
    full_mappings["mapped"] = 0
    for level in (1, 5, 6):  # their queues in the schedule topic exist
        put(store, level, topic="Lawful")
    clock.advance(120)
    await deliver_all(service)
    put(store, 1, topic="Stuck", body=b"stuck", KEYS="k")
    put(store, 1, topic="Lawful", body=b"lawful")
    full_mappings["mapped"] = 1 << 20

    clock.advance(1)
    await deliver_all(service)
    assert delivered(store, "Lawful")[-1].body == b"lawful", "it does not wait for the stuck one"
    assert "message 1 could not be stored in topic Stuck" in caplog.text
    again = make(tmp_path, store, clock)  # as after a restart
    again.offset_table = dict(service.offset_table)
    for seconds in (60, 120):
        clock.advance(seconds - 0.001)
        await deliver_all(again)
        assert delivered(store, "Stuck") == []
        full_mappings["mapped"] = 0 if seconds == 120 else 1 << 20
        clock.advance(0.001)
        await deliver_all(again)

    (found,) = delivered(store, "Stuck")
    assert (found.body, found.properties["KEYS"], found.queue_id) == (b"stuck", "k", 1)
    levels = {level: queue.max_offset for level, queue in store.queues.queues_of("SCHEDULE_TOPIC_XXXX").items()}
    assert levels == {0: 3, 4: 2, 5: 2}, "one copy for each further delay, which rises"


async def test_a_stuck_message_waits_in_its_place_where_the_log_has_no_room(service, store, clock, monkeypatch):
    put(store, 1)
    clock.advance(1)
    with monkeypatch.context() as patched:
        failed = PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, reason="no descriptor")
        patched.setattr(store.appender, "put_copy", lambda _: failed)
        await service.deliver_due()
        assert service.offset_table == {}
    await service.deliver_due()
    assert (len(delivered(store)), service.offset_table) == (1, {1: 1})


async def deliver_all(service):
    for _ in range(3):
        await service.deliver_due()


async def test_message_without_an_address_is_discarded_and_the_next_delivered(service, store, clock, caplog):
    for properties in ({"DELAY": "1"}, {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"}):
        store.appender.put_message(MessageExtBrokerInner("SCHEDULE_TOPIC_XXXX", 0, b"", encode_properties(properties)))
    put(store, 1, topic="RMQ_SYS_TRANS_HALF_TOPIC")
    put(store, 1)
    clock.advance(1)
    await service.deliver_due()
    assert len(delivered(store)) == 1
    assert service.offset_table == {1: 4}
    assert caplog.text.count("is discarded") == 3


async def test_a_damaged_entry_delivers_no_other_message(service, store, clock, caplog):
    for body in (b"first", b"second", b"third"):
        put(store, 1, body=body)
    queue = store.queues.queues_of("SCHEDULE_TOPIC_XXXX")[0]
    # It names the first message again.
    overwrite(queue.queue.files[0], 20, bytes(queue.queue.files[0].buffer[:20]))
    clock.advance(1)

    await service.deliver_due()

    assert [message.body for message in delivered(store)] == [b"first", b"third"]
    assert "message 1 of queue 0 of SCHEDULE_TOPIC_XXXX is missing" in caplog.text
    assert "delay level 1: 1 messages are damaged or missing" in caplog.text


class OtherMaster:
    """Takes all messages."""

    def __init__(self):
        self.got: list[bytes] = []

    async def put(self, message):
        self.got.append(bytes(message.body))
        return PutMessageResult(PutMessageStatus.PUT_OK)


async def test_a_damaged_message_on_a_slave_waits_for_the_master(tmp_path, store, clock, caplog):
    for body in (b"first", b"second", b"third"):
        put(store, 1, body=body)
    put(store, 2, body=b"other level")
    queue = store.queues.queues_of("SCHEDULE_TOPIC_XXXX")[0]
    overwrite(queue.queue.files[0], 20, bytes(queue.queue.files[0].buffer[:20]))
    other = OtherMaster()
    service = make(tmp_path, store, clock, put=other.put)
    clock.advance(5)

    for _ in range(3):
        await service.deliver_due()

    assert (other.got, service.offset_table) == ([b"first", b"other level"], {1: 1, 2: 1})
    assert caplog.text.count("delay level 1 waits for the master: this slave lacks message 1") == 1


async def test_messages_that_a_slave_never_had_wait_for_the_master(tmp_path, store, clock):
    for body in (b"missing", b"second"):
        put(store, 1, body=body)
    store.queues.queues_of("SCHEDULE_TOPIC_XXXX")[0].min_offset = 1
    other = OtherMaster()
    service = make(tmp_path, store, clock, put=other.put)
    clock.advance(1)
    async with running(service):
        await service.deliver_due()
        assert (other.got, service.offset_table) == ([], {})
    service.offset_table = {1: 1}
    await service.deliver_due()
    assert (other.got, service.offset_table) == ([b"second"], {1: 2})


async def test_a_slave_keeps_progress_before_its_queue(tmp_path, store, clock):
    put(store, 1)
    put(store, 1)
    store.queues.queues_of("SCHEDULE_TOPIC_XXXX")[0].min_offset = 2
    service = make(tmp_path, store, clock, put=OtherMaster().put)
    service.offset_table = {1: 1}
    async with running(service):
        assert service.offset_table == {1: 1}


async def test_runs_by_itself(service, store, clock):
    put(store, 1)
    await service.start()
    clock.advance(1)
    async with asyncio.timeout(60):
        while not delivered(store):  # noqa: ASYNC110 - the store tells a listener only
            await asyncio.sleep(0.01)
    await service.stop()


def test_recorded_file(tmp_path, service):
    service.decode(GOLDEN)
    assert service.offset_table == {1: 7, 3: 2}
    assert service.encode() == GOLDEN


def test_damaged_file(service):
    service.path.write_bytes(b'{"offsetTable":{one:1}}')
    with pytest.raises(ConfigError, match=r"delayOffset\.json is damaged"):
        service.load()


@pytest.mark.proves("When the store is opened", "6. delayed messages")
@pytest.mark.proves(
    "Delayed messages",
    "after a kill nothing is lost; what was delivered since the last write of the progress may come twice",
)
async def test_progress_is_written_once_the_copies_are_on_disk(tmp_path, store, clock):
    written: list[bytes] = []
    service = make(tmp_path, store, clock, lambda table: written.append(table.encode()))
    put(store, 1)
    clock.advance(2)
    await service.deliver_due()
    service.flush()
    assert written == [], "a power loss now would take the copy"

    store.flusher.flush()
    service.flush()

    assert b"1:1" in written[-1]
    service.flush()
    assert len(written) == 1


@pytest.mark.proves("When the store is opened", "6. delayed messages")
async def test_a_stop_brings_the_last_copies_to_disk_and_writes_that(tmp_path, store, clock):
    written: list[bytes] = []
    service = make(tmp_path, store, clock, lambda table: written.append(table.encode()))
    put(store, 2)
    clock.advance(6)
    await service.deliver_due()

    await service.stop()

    assert b"2:1" in written[-1]
    assert store.flusher.flushed_offset == store.commit_log.max_offset
