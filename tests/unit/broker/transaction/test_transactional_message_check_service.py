"""Checks that a producer gets, compared with those of Apache RocketMQ 5.5.0."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_check_service import TransactionalMessageCheckListener
from rocketbroker.broker.transaction.transactional_message_util import checked_copy
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.remoting_command import to_ext_fields
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus, Refusal
from tests.support.damage import overwrite
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.golden_frames import GoldenFrame, requests_of
from tests.support.stores import read_queue
from tests.support.transactions import CHECK_MAX_TOPIC, COMMIT, GROUP, HALF_TOPIC, OP_TOPIC, ROLLBACK, Transactions
from tests.support.waiting import until

pytestmark = [
    pytest.mark.proves(
        "Transactions",
        "check-back to any live producer of the group, a sibling when the first was killed; "
        "`transactionTimeOut`, `transactionCheckMax`, the message is in TRANS_CHECK_MAX_TIME_TOPIC then, and "
        "can be taken up again",
    ),
]

STORE_HOST = host_bytes("127.0.0.1", 30911)
CHECKS = requests_of(39)


@pytest.fixture
def connection():
    return FakeConnection()


@pytest.fixture
def listener(tmp_path, connection):
    clock = FakeClock()
    producers = ProducerManager(clock, 120.0)
    producers.register("PG_Tx", ClientChannelInfo(connection, "one", "JAVA", 513, clock.monotonic()))
    config = BrokerConfig(broker_name="broker-a")
    topics = TopicConfigManager(tmp_path / "topics.json", config, clock)
    return TransactionalMessageCheckListener(producers, topics, "broker-a", STORE_HOST)


def half_of(shown: MessageExt) -> MessageExt:
    """The half message before it was put back, of which a recorded question shows the copy."""
    properties = shown.properties | {"WAIT": "true"}
    del properties["TRANSACTION_CHECK_TIMES"]
    return msgspec.structs.replace(
        shown,
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_id=0,
        queue_offset=shown.queue_offset - 1,
        commit_log_offset=1,
        properties_bytes=encode_properties(properties),
        _properties=None,
    )


@pytest.mark.parametrize("frame", CHECKS, ids=lambda frame: frame.client)
def test_the_question_is_as_recorded(listener, connection, frame: GoldenFrame):
    recorded = frame.command()
    shown = decode_record(frame.body())
    half = half_of(shown)
    stored = PutMessageResult(PutMessageStatus.PUT_OK, shown.commit_log_offset, shown.queue_offset)
    assert listener.resolve_half_message(half, checked_copy(half, 1, STORE_HOST), stored)
    (asked,) = connection.sent
    assert (asked.code, asked.is_oneway) == (39, True)
    assert to_ext_fields(asked.header) == to_ext_fields(recorded.header)
    ours = decode_record(asked.body, check_crc=True)
    assert ours.properties == shown.properties
    assert msgspec.structs.replace(ours, properties_bytes=b"", _properties=None) == msgspec.structs.replace(
        shown, properties_bytes=b"", _properties=None
    )


def test_there_are_recorded_questions():
    assert len(CHECKS) == 2


def test_nobody_is_asked_if_nobody_is_connected(listener, connection):
    half = half_of(decode_record(CHECKS[0].body()))
    stored = PutMessageResult(PutMessageStatus.PUT_OK, 1, 1)
    connection.is_open = False
    assert not listener.resolve_half_message(half, checked_copy(half, 1, STORE_HOST), stored)
    assert connection.sent == []


async def test_a_transaction_is_asked_for_when_it_is_old_enough(transactions: Transactions):
    transactions.stats.meters = meters = MessageMeters()
    producer = transactions.producer("one")
    half = transactions.send()
    await transactions.check(6.0)
    reads = meters.own_reads["RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"]
    assert (reads.nums, reads.size) == (1, half.store_size)
    assert transactions.asked(producer) == []
    await transactions.check(0.001)
    (copy,) = transactions.asked(producer)
    assert copy.queue_offset == 1
    assert copy.properties == half.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.body, copy.flag, copy.born_timestamp) == (half.body, 7, half.born_timestamp)
    transactions.end(copy, from_transaction_check=True)
    assert transactions.bodies() == [half.body]
    await transactions.check(100)
    assert transactions.asked(producer) == []


async def test_a_transaction_that_ends_meanwhile_is_not_checked(transactions: Transactions):
    producer = transactions.producer("one")
    halves = [transactions.send() for _ in range(4)]
    transactions.end(halves[0])
    transactions.end(halves[2], ROLLBACK)
    await transactions.check()
    assert [copy.body for copy in transactions.asked(producer)] == [halves[1].body, halves[3].body]


@pytest.mark.parametrize("type_", [COMMIT, ROLLBACK])
async def test_a_transaction_that_ends_while_the_check_reads_it_is_not_put_back(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch, type_: int
):
    producer = transactions.producer("one")
    half, other = transactions.send(), transactions.send()
    read = transactions.store.queries.read_message

    async def end_meanwhile(offset: int) -> bytes | None:
        found = await read(offset)
        if offset == half.commit_log_offset:
            transactions.end(half, type_)
        return found

    monkeypatch.setattr(transactions.store.queries, "read_message", end_meanwhile)
    await transactions.check()
    (asked,) = transactions.asked(producer)
    assert asked.body == other.body
    assert [each.body for each in read_queue(transactions.store, HALF_TOPIC, 0)] == [half.body, other.body, other.body]
    assert transactions.bodies() == ([half.body] if type_ == COMMIT else [])


async def test_nothing_is_asked_while_another_broker_may_check(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch
):
    producer = transactions.producer("one")
    transactions.send()
    transactions.send()
    monkeypatch.setattr(transactions.checks, "_may_check", lambda: False)
    await transactions.check()
    assert transactions.asked(producer) == []
    # The other broker has dealt with the first one.
    transactions.offsets.commit(GROUP, HALF_TOPIC, 0, 1)
    transactions.service.follow_progress()
    monkeypatch.setattr(transactions.checks, "_may_check", lambda: True)
    await transactions.check()
    assert [copy.body for copy in transactions.asked(producer)] == [b"body 2"]


async def test_each_turn_asks_once_and_young_ones_wait_behind(transactions: Transactions):
    producer = transactions.producer("one")
    transactions.send()
    transactions.clock.advance(5)
    young = transactions.send()
    await transactions.check(2)
    assert [copy.queue_offset for copy in transactions.asked(producer)] == [2]
    await transactions.check(2)
    assert transactions.asked(producer) == [], "the copy is behind the young one"
    await transactions.check(3)
    first, second = transactions.asked(producer)
    assert (first.body, first.get_property("TRANSACTION_CHECK_TIMES")) == (young.body, "1")
    assert (second.body, second.get_property("TRANSACTION_CHECK_TIMES")) == (b"body 1", "2")


async def test_siblings_are_asked_in_turn_and_those_of_another_group_never(transactions: Transactions):
    one, two, other = (transactions.producer(*names) for names in (("one",), ("two",), ("other", "Other")))
    transactions.send()
    for _ in range(4):
        await transactions.check()
    assert (len(transactions.asked(one)), len(transactions.asked(two)), other.sent) == (2, 2, [])
    one.is_open = False
    for _ in range(2):
        await transactions.check()
    assert (len(transactions.asked(one)), len(transactions.asked(two))) == (0, 2)


async def test_an_unresolved_transaction_is_discarded_after_the_last_check(tmp_path: Path, caplog):
    transactions = await Transactions.open(tmp_path / "store", settings={"transaction_check_max": 3})
    producer = transactions.producer("one")
    half = transactions.send()
    for _ in range(3):
        await transactions.check()
    copies = transactions.asked(producer)
    assert [copy.get_property("TRANSACTION_CHECK_TIMES") for copy in copies] == ["1", "2", "3"]
    assert read_queue(transactions.store, CHECK_MAX_TOPIC, 0) == []
    await transactions.check()
    (given_up,) = read_queue(transactions.store, CHECK_MAX_TOPIC, 0)
    assert given_up.properties == copies[-1].properties
    assert (given_up.body, given_up.flag, given_up.sys_flag) == (half.body, 7, 0)
    config = transactions.topic_configs.select(CHECK_MAX_TOPIC)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert transactions.service.open_offset(half) is None
    assert "is discarded after 3 checks: it is in TRANS_CHECK_MAX_TIME_TOPIC at offset 0" in caplog.text
    await transactions.check(1000)
    assert producer.sent == []
    await transactions.close()


async def test_checks_count_even_if_no_producer_is_connected(tmp_path: Path, caplog):
    transactions = await Transactions.open(tmp_path / "store", settings={"transaction_check_max": 1})
    for group in ("PG", "PG", "Other"):
        transactions.send(group=group)
    await transactions.check()
    logged = [record.getMessage() for record in caplog.records if "no ready client" in record.getMessage()]
    assert logged == [
        f"producer group {group} has no ready client to ask about {count} open transactions"
        for group, count in (("PG", 2), ("Other", 1))
    ]
    await transactions.check()
    assert len(read_queue(transactions.store, CHECK_MAX_TOPIC, 0)) == 3
    await transactions.close()


async def test_a_transaction_past_retention_is_checked_once_and_then_discarded(transactions: Transactions):
    producer = transactions.producer("one")
    transactions.send()
    await transactions.check(73 * 3600)
    assert len(transactions.asked(producer)) == 1
    await transactions.check()
    assert transactions.asked(producer) == []
    assert len(read_queue(transactions.store, CHECK_MAX_TOPIC, 0)) == 1


async def test_an_immune_one_lets_others_pass_and_is_asked_for_when_its_time_is_over(transactions: Transactions):
    producer = transactions.producer("one")
    immune = transactions.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    other = transactions.send()
    for _ in range(3):
        await transactions.check(10)
    assert {copy.body for copy in transactions.asked(producer)} == {other.body}
    copy = transactions.halves()[transactions.service.open_offset(immune) or 0]
    assert copy.get_property("TRAN_PREPARED_QUEUE_OFFSET") == "0"
    assert copy.get_property("TRANSACTION_CHECK_TIMES") is None
    await transactions.check(30.001)
    assert immune.body in {copy.body for copy in transactions.asked(producer)}


async def test_an_immune_one_is_ended_by_the_offsets_that_its_producer_knows(transactions: Transactions):
    immune = transactions.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    await transactions.check(10)
    await transactions.check(10)
    assert transactions.service.open_offset(immune) == 2
    assert transactions.end(immune).code == 0
    assert transactions.bodies() == [immune.body]
    transactions.write_ops()
    assert transactions.ops() == [b"2,"]
    await transactions.check(100)
    assert len(transactions.halves()) == 3


async def test_a_clock_that_was_set_back_keeps_no_transaction_waiting(transactions: Transactions):
    producer = transactions.producer("one")
    transactions.send()
    transactions.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    await transactions.check(-3600)
    assert len(transactions.asked(producer)) == 2


async def test_a_half_message_that_cannot_be_put_back_is_checked_the_next_time(transactions: Transactions):
    producer = transactions.producer("one")
    transactions.send()
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    await transactions.check()
    assert (transactions.asked(producer), transactions.service.half_offsets.position) == ([], 0)
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    await transactions.check()
    assert len(transactions.asked(producer)) == 1


async def test_one_that_can_never_be_put_back_does_not_keep_the_others_waiting(transactions: Transactions, monkeypatch):
    producer = transactions.producer("one")
    transactions.send()
    other = transactions.send()
    put = transactions.service.put
    refused = [PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason="too long")]
    monkeypatch.setattr(transactions.service, "put", lambda message: refused.pop() if refused else put(message))
    await transactions.check()
    assert [copy.body for copy in transactions.asked(producer)] == [other.body]


async def test_a_transaction_that_cannot_be_discarded_now_is_discarded_the_next_time(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", settings={"transaction_check_max": 1})
    transactions.send()
    await transactions.check()
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    await transactions.check()
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    assert transactions.service.half_offsets.position == 1
    await transactions.check()
    assert len(read_queue(transactions.store, CHECK_MAX_TOPIC, 0)) == 1
    await transactions.close()


async def test_a_damaged_half_message_is_skipped(transactions: Transactions, caplog):
    producer = transactions.producer("one")
    damaged, sound = transactions.send(), transactions.send()
    position = damaged.commit_log_offset + damaged.store_size - 3
    file = transactions.store.commit_log.queue.find(position)
    assert file is not None
    body_at = damaged.commit_log_offset + 88
    overwrite(file, body_at, b"?")
    await transactions.check()
    assert [copy.body for copy in transactions.asked(producer)] == [sound.body]
    assert "half message 0 is skipped" in caplog.text


async def test_under_sync_flush_a_producer_is_asked_when_the_copy_is_on_disk(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    producer = transactions.producer("one")
    transactions.send()
    await transactions.store.flusher.sync()
    await transactions.check()
    await until(lambda: bool(producer.sent))
    (copy,) = transactions.asked(producer)
    assert transactions.end(copy, oneway=True, from_transaction_check=True).code == 0
    await transactions.store.flusher.sync()
    assert transactions.bodies() == [copy.body]
    await transactions.close()


async def test_the_service_checks_each_interval_and_stops(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store")
    producer = transactions.producer("one")
    await transactions.checks.start()
    ended, _ = transactions.send(), transactions.send()
    transactions.end(ended)
    transactions.clock.advance(29)
    transactions.store.flusher.flush()
    await until(lambda: transactions.ops() == [b"0,"])
    assert producer.sent == []
    transactions.clock.advance(1)
    await until(lambda: bool(producer.sent))
    await transactions.checks.stop()
    assert transactions.committed() == {HALF_TOPIC: 2, OP_TOPIC: 1}
    transactions.clock.advance(1000)
    await asyncio.sleep(0)
    assert len(producer.sent) == 1
    await transactions.close()


@pytest.mark.parametrize("count", [0, 1])
async def test_a_store_without_open_transactions_is_left_alone(transactions: Transactions, count: int):
    for _ in range(count):
        transactions.end(transactions.send())
    await transactions.check(1000)
    assert len(transactions.halves()) == count


# -- the room that copies may take


RATE = 1_000


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Transactions]:
    """Transactions whose copies may take 1,000 bytes a second."""
    found = await Transactions.open(tmp_path / "slow", settings={"transaction_check_bytes_per_second": RATE})
    yield found
    await found.close()


async def test_checks_write_no_more_than_they_may_and_ask_as_often_as_ever(slow: Transactions):
    producer = slow.producer("one")
    halves = [slow.send(b"%d" % number * 5_000) for number in range(10)]
    stored = slow.store.commit_log.max_offset
    await slow.check(7)
    asked = [slow.asked(producer)]
    for _ in range(14):
        await slow.check(1)
        asked.append(slow.asked(producer))

    copied = slow.store.commit_log.max_offset - stored
    assert copied <= 10 * RATE + 14 * RATE + max(half.store_size for half in halves) + 100
    assert [len(each) for each in asked] == [10] * 15
    for _ in range(2):
        await slow.check(1)
    assert slow.asked(producer) == []
    given_up = read_queue(slow.store, CHECK_MAX_TOPIC, 0)
    assert sorted(each.body for each in given_up) == sorted(half.body for half in halves)
    assert {each.get_property("TRANSACTION_CHECK_TIMES") for each in given_up} == {"15"}
    assert slow.service.half_offsets.position == len(slow.halves())


async def test_a_check_names_its_number_and_the_copy_that_the_producer_ends(slow: Transactions):
    producer = slow.producer("one")
    first, second = slow.send(b"1" * 15_000), slow.send(b"2" * 15_000)
    await slow.check()
    slow.asked(producer)
    await slow.check(0.001)
    shown = [decode_record(command.body) for command in producer.sent]
    assert {each.get_property("TRANSACTION_CHECK_TIMES") for each in shown} == {"2"}
    places = [each.queue_offset for each in slow.asked(producer)]
    assert places == [1, 2], "the first has a copy, the second is where it was"

    assert slow.end(second, from_transaction_check=True).code == 0
    assert slow.bodies() == [second.body]
    await slow.check(0.001)
    (copy,) = slow.asked(producer)
    assert copy.body == first.body


async def test_one_that_stayed_is_copied_when_there_is_room_with_all_its_checks(slow: Transactions):
    producer = slow.producer("one")
    slow.send(b"1" * 15_000)
    other = slow.send(b"2" * 3_000)
    await slow.check()
    await slow.check(0.001)
    slow.asked(producer)
    slow.end(slow.halves()[2])
    await slow.check(60)
    (copy,) = slow.asked(producer)
    assert (copy.body, copy.queue_offset) == (other.body, 3)
    assert copy.get_property("TRANSACTION_CHECK_TIMES") == "3"
    assert slow.checks._in_place.keys() <= {1}
    await slow.check(60)
    assert slow.checks._in_place == {}


async def test_immune_ones_stay_where_they_are_and_are_not_read_again(slow: Transactions, monkeypatch):
    producer = slow.producer("one")
    for number in range(10):
        slow.send(b"%d" % number * 15_000, CHECK_IMMUNITY_TIME_IN_SECONDS="100000000")
    other = slow.send()
    read = slow.store.queries.read_message
    reads: list[int] = []

    async def counted(physical_offset: int) -> bytes | None:
        reads.append(physical_offset)
        return await read(physical_offset)

    monkeypatch.setattr(slow.store.queries, "read_message", counted)
    stored = slow.store.commit_log.max_offset
    await slow.check()
    assert len(reads) == 11
    for _ in range(20):
        await slow.check(1)
    assert len(reads) <= 11 + 20 * 3
    assert slow.store.commit_log.max_offset - stored <= 30 * RATE + 2 * 15_500
    assert {each.body for each in slow.asked(producer)} == {other.body}


async def test_one_that_is_immune_for_years_is_asked_for_when_it_is_older_than_all_messages(slow: Transactions):
    producer = slow.producer("one")
    immune = slow.send(CHECK_IMMUNITY_TIME_IN_SECONDS="1000000000")
    await slow.check(71 * 3600)
    assert slow.asked(producer) == []
    await slow.check(2 * 3600)
    assert [each.body for each in slow.asked(producer)] == [immune.body]
    await slow.check()
    assert len(read_queue(slow.store, CHECK_MAX_TOPIC, 0)) == 1


async def test_one_that_stayed_is_open_after_a_kill(slow: Transactions, tmp_path: Path):
    slow.producer("one")
    first, second = slow.send(b"1" * 15_000), slow.send(b"2" * 15_000)
    await slow.check()
    await slow.check(0.001)
    slow.sync()
    again = await slow.killed(tmp_path / "killed", slow.committed())
    producer = again.producer("one")
    await again.check()
    assert sorted(each.body for each in again.asked(producer)) == [first.body, second.body]
    await again.close()


@pytest.mark.soak
@pytest.mark.timeout(120)
async def test_40_mib_of_half_messages_checked_each_second_take_little_more_of_the_log(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", mapped_file_size_commit_log=64 << 20)
    for number in range(10):
        transactions.send(bytes([number]) * ((4 << 20) - 4096))
    stored = transactions.store.commit_log.max_offset
    await transactions.check(7)
    for _ in range(25):
        await transactions.check(1)

    assert len(read_queue(transactions.store, CHECK_MAX_TOPIC, 0)) == 10
    written = transactions.store.commit_log.max_offset - stored
    print(f"{stored >> 20} MiB of half messages, {written >> 20} MiB more after 15 checks and their discard")
    assert written < stored + (5 + 10 + 25) * 262_144 + (5 << 20)
    await transactions.close()


async def test_checks_can_be_stopped_and_started_again(transactions: Transactions):
    ended, kept = transactions.send(), transactions.send()
    await transactions.checks.start()
    await transactions.checks.stop()
    transactions.end(ended)

    await transactions.checks.start()

    assert transactions.service.open_offset(ended) is None, "it was ended meanwhile, and no op message tells of it yet"
    assert transactions.service.open_offset(kept) == kept.queue_offset
    await transactions.checks.stop()
