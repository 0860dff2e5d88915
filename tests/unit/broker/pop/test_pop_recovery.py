"""Starts after kills: open check points, offsets, resets and ordered batches, and stores of Apache's broker."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketbroker.broker.pop import pop_recovery
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint
from rocketbroker.broker.pop.pop_recovery import PopRecovery
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.pop_check_point import AckMsg, BatchAckMsg, PopCheckPoint
from rocketbroker.codec.message.pop_info import REVIVE_GROUP, pop_retry_topic, revive_topic
from rocketbroker.codec.message.raw_records import ExpectedRecord
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.read.message_fetcher import EntryReader
from tests.support.fakes import FakeClock
from tests.support.pop_broker import TOPIC, Handed, PopBroker
from tests.support.running import running
from tests.support.stores import crash_copy, message

REVIVE = revive_topic("C")
TIMER = "rmq_sys_wheel_timer"


def killed(broker: PopBroker, into: Path) -> PopBroker:
    """Return a broker on the files that a kill leaves now, with the clock of the other."""
    crash_copy(Path(broker.store.config.store_path_root_dir), into)
    return PopBroker(into, broker.clock, mapped_file_size_consume_queue=20_000)


def bodies(found: list[Handed]) -> list[bytes]:
    """Return the bodies of messages."""
    return [each.body for each in found]


async def returned(broker: PopBroker, seconds: float = 100) -> list[bytes]:
    """Return what group G gets when all invisible times are over."""
    broker.clock.advance(seconds)
    await broker.run()
    found: list[Handed] = []
    while some := await broker.pop(invisible_ms=3_600_000):
        found += some
    return sorted(bodies(found))


async def test_a_start_finds_what_is_not_acknowledged(broker: PopBroker, tmp_path: Path) -> None:
    for body in (b"a", b"b", b"c"):
        broker.send(body)
    first, *_ = await broker.pop(queue_id=0)
    await broker.ack("G", first)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.check_points.count == 1
        assert again.offsets.query("G", TOPIC, 0) == 3
        assert await again.pop() == []
        assert await returned(again) == [b"b", b"c"]


async def test_a_start_leaves_check_points_that_are_acknowledged(broker: PopBroker, tmp_path: Path) -> None:
    broker.send()
    (found,) = await broker.pop()
    await broker.ack("G", found)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.check_points.count == 0


async def test_a_changed_time_is_neither_lost_nor_doubled(broker: PopBroker, tmp_path: Path) -> None:
    broker.send(b"a")
    (found,) = await broker.pop(invisible_ms=1_000)
    changed = await broker.change("G", found, 50_000)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.check_points.count == 1
        assert await returned(again, 49) == []
        await again.ack("G", changed)
        assert await returned(again) == []


async def test_a_kill_amid_a_change_leaves_one_delivery(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the new time names the delivery that it replaces; what follows it is for Apache's broker only."""
    broker.send(b"a")
    (found,) = await broker.pop(invisible_ms=1_000)
    put, puts = broker.store.appender.put_copy, iter([True, False])
    full = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda each: put(each) if next(puts) else full)
    await broker.change("G", found, 50_000)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.check_points.count == 1
        assert await returned(again, 49) == []
        assert await returned(again, 2) == [b"a"]


# -- offsets that are set


async def test_a_reset_that_a_pop_has_taken_over_is_not_repeated(broker: PopBroker, tmp_path: Path) -> None:
    for body in (b"a", b"b"):
        broker.send(body)
    for found in await broker.pop(queue_id=0):
        await broker.ack("G", found)
    broker.reset.assign("G", TOPIC, {0: 0})
    await broker.reset.store()
    broker.clock.advance(1)
    again = await broker.pop(queue_id=0)
    assert bodies(again) == [b"a", b"b"]
    for found in again:
        await broker.ack("G", found)
    # The file has the reset still.
    async with running(killed(broker, tmp_path / "killed")) as restarted:
        assert await returned(restarted) == []
        assert not restarted.offsets.is_reset("G", TOPIC, 0)


@pytest.mark.parametrize("target", [0, 1])
async def test_a_kill_amid_a_reset_does_not_repeat_the_one_before(
    broker: PopBroker, tmp_path: Path, target: int
) -> None:
    """The log has the second one already, the file still the first one, which a pop has taken over."""
    for body in (b"a", b"b"):
        broker.send(body)
    broker.groups.find("G")
    broker.reset.assign("G", TOPIC, {0: 0})
    await broker.reset.store()
    for found in await broker.pop(queue_id=0, most=1, invisible_ms=1_000):
        await broker.ack("G", found)
    broker.reset.assign("G", TOPIC, {0: target})
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.offsets.query("G", TOPIC, 0) == target
        assert await returned(again) == [b"a", b"b"][target:]


async def test_a_reset_that_no_pop_has_taken_over_waits_on(broker: PopBroker, tmp_path: Path) -> None:
    for body in (b"a", b"b"):
        broker.send(body)
    for number in range(2):
        # Also one to the same offset as one that is over.
        for found in await broker.pop(queue_id=0):
            await broker.ack("G", found)
        broker.reset.assign("G", TOPIC, {0: 0})
        await broker.reset.store()
        broker.clock.advance(1)
        async with running(killed(broker, tmp_path / f"killed-{number}")) as again:
            assert again.offsets.is_reset("G", TOPIC, 0)
            assert await returned(again) == [b"a", b"b"]


async def test_an_offset_set_forward_after_one_set_back_counts(broker: PopBroker, tmp_path: Path) -> None:
    for _ in range(9):
        broker.send()
    await broker.pop(queue_id=0, most=5)
    for target in (0, 7):
        broker.offsets.replace("G", TOPIC, 0, target)
        await broker.reset.store()
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert again.offsets.query("G", TOPIC, 0) == 7


async def test_a_set_offset_is_on_disk_before_its_answer(broker: PopBroker) -> None:
    broker.send()
    await broker.pop(queue_id=0)
    broker.offsets.replace("G", TOPIC, 0, 0)
    assert broker.store.flusher.flushed_offset < broker.check_points.log_end
    await broker.reset.store()
    assert broker.store.flusher.flushed_offset == broker.check_points.log_end


async def test_a_reset_in_order_forgets_what_the_batch_had(broker: PopBroker, tmp_path: Path) -> None:
    for body in (b"a", b"b", b"c"):
        broker.send(body)
    found = await broker.pop("O", 0, order=True, attempt_id="1")
    await broker.ack("O", found[1])
    broker.reset.assign("O", TOPIC, {0: 0})
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert bodies(await again.pop("O", 0, order=True, attempt_id="2")) == [b"a", b"b", b"c"]


# -- ordered batches


@pytest.mark.parametrize("begin", [None, 0])
async def test_acknowledgements_that_only_the_file_of_batches_has_count(
    broker: PopBroker, tmp_path: Path, begin: int | None
) -> None:
    broker.groups.find("O")
    if begin is not None:
        broker.offsets.commit("O", TOPIC, 0, begin)
        broker.offsets.flush()
    for body in (b"a", b"b"):
        broker.send(body)
    before = crash_copy(tmp_path / "store", tmp_path / "before")
    (first,) = await broker.pop("O", 0, 1, order=True, attempt_id="1")
    await broker.ack("O", first)
    broker.orders.flush()
    # A power loss took the end of the log, and left the file.
    (before / "config/consumerOrderInfo.json").write_bytes(broker.orders.path.read_bytes())
    async with running(PopBroker(before, broker.clock)) as again:
        # Popped one by one, since the group would never get beyond the acknowledged one.
        assert bodies(await again.pop("O", 0, 1, order=True, attempt_id="2")) == [b"b"]


async def test_messages_that_come_in_the_place_of_lost_ones_are_delivered(broker: PopBroker, tmp_path: Path) -> None:
    broker.groups.find("O")
    broker.send(b"a")
    before = crash_copy(tmp_path / "store", tmp_path / "before")
    for body in (b"b", b"c"):
        broker.send(body)
    found = await broker.pop("O", 0, order=True, attempt_id="1")
    for each in found[1:]:
        await broker.ack("O", each)
    broker.orders.flush()
    (before / "config/consumerOrderInfo.json").write_bytes(broker.orders.path.read_bytes())
    # Two starts: the second one must not see them as acknowledged either.
    async with running(PopBroker(before, broker.clock)) as first:
        first.send(b"B")
        first.send(b"C")
        twice = killed(first, tmp_path / "twice")
    async with running(twice):
        twice.clock.advance(100)
        assert bodies(await twice.pop("O", 0, order=True, attempt_id="2")) == [b"a", b"B", b"C"]


# -- returned messages


class Killed(Exception):  # noqa: N818 - not an error of the broker
    """The broker ends here."""


async def run_to_next_record(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker return messages, and end before its next record in the timer's queue."""
    put = broker.store.appender.put_copy

    def put_or_end(found: MessageExtBrokerInner) -> PutMessageResult:
        if found.topic == TIMER:
            raise Killed
        return put(found)

    with monkeypatch.context() as patch:
        patch.setattr(broker.store.appender, "put_copy", put_or_end)
        with pytest.raises(Killed):
            await broker.run()
    broker.store.appender.dispatch()


@pytest.mark.parametrize("suspend", [False, True])
async def test_copies_without_the_record_that_follows_them_are_not_stored_again(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, suspend: bool
) -> None:
    for body in (b"a", b"b"):
        broker.send(body)
    for found in await broker.pop(queue_id=0, invisible_ms=1_000):
        await broker.change("G", found, 1_000, suspend=suspend)
    broker.clock.advance(2)
    await run_to_next_record(broker, monkeypatch)
    async with running(killed(broker, tmp_path / "killed")) as again:
        # Two check points, and the copy of the first one only.
        assert again.check_points.count == 1
        assert await returned(again) == [b"a", b"b"]


async def test_copies_in_a_queue_of_their_own_are_not_stored_again(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_updates([broker.config], {"popFromRetryProbability": "0"})
    for body in (b"older", b"newer"):
        broker.send(body)
        await broker.pop(queue_id=0, most=1, invisible_ms=1_000)
        broker.clock.advance(2)
        await broker.run()
    apply_updates([broker.config], {"useSeparateRetryQueue": "true"})
    for queue_id, body in ((1, b"a"), (0, b"b")):
        broker.send(body, queue_id)
        await broker.pop(queue_id=queue_id, most=1, invisible_ms=1_000)
        broker.clock.advance(0.5)
    broker.clock.advance(2)
    await run_to_next_record(broker, monkeypatch)
    read = []
    records = EntryReader.records

    async def noted(
        reader: EntryReader, queue: ConsumeQueueInterface, entries: Sequence[ExpectedRecord]
    ) -> list[memoryview]:
        if entries and queue.topic == pop_retry_topic(TOPIC, "G"):
            read.append((queue.queue_id, len(entries)))
        return await records(reader, queue, entries)

    monkeypatch.setattr(EntryReader, "records", noted)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert read == [(1, 1)], "the older copies are not read"
        # The other queue's check point is open still.
        assert again.check_points.count == 1
        assert await returned(again) == [b"a", b"b", b"newer", b"older"]


async def test_a_copy_waits_until_its_queue_is_on_disk(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would not know the queue, and nobody would read it."""
    apply_updates([broker.config], {"useSeparateRetryQueue": "true"})
    retry_topic = pop_retry_topic(TOPIC, "G")
    broker.topics.update(TopicConfig(retry_topic, 2, 2))
    broker.topics.update(TopicConfig(TOPIC, 4, 4))
    broker.send(b"a", 3)
    await broker.pop(queue_id=3, invisible_ms=1_000)
    broker.clock.advance(2)
    monkeypatch.setattr(broker.topics, "_on_persist", lambda _table: None)
    await broker.run()
    grown = broker.topics.select(retry_topic)
    assert grown is not None
    assert (grown.read_queue_nums, broker.store.queues.max_offset_in_queue(retry_topic, 3)) == (4, 0)
    async with running(killed(broker, tmp_path / "killed")) as again:
        apply_updates([again.config], {"useSeparateRetryQueue": "true"})
        assert await returned(again) == [b"a"]
        assert again.store.queues.max_offset_in_queue(retry_topic, 3) == 1


async def test_a_copy_belongs_to_one_of_two_equal_messages(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        broker.send(b"same")
        await broker.pop(queue_id=0, most=1, invisible_ms=1_000)
        broker.clock.advance(0.05)
    broker.clock.advance(1)
    await run_to_next_record(broker, monkeypatch)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert await returned(again) == [b"same"] * 2


async def test_check_points_that_were_not_due_are_not_compared_with_copies(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id, invisible_ms in [(0, 60_000)] * 9 + [(1, 1_000), (0, 1_500)]:
        broker.send(b"%d" % invisible_ms, queue_id)
        await broker.pop(queue_id=queue_id, most=1, invisible_ms=invisible_ms)
    broker.clock.advance(1.2)
    await run_to_next_record(broker, monkeypatch)
    compared = []
    close = PopRecovery._close_returned

    async def noted(recovery: PopRecovery, each: OpenCheckPoint, copies: list[MessageExt]) -> bool:
        compared.append(each.invisible_time)
        return await close(recovery, each, copies)

    monkeypatch.setattr(PopRecovery, "_close_returned", noted)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert compared == [1_000]
        assert again.check_points.count == 10


async def test_copies_before_the_last_record_are_those_of_others(broker: PopBroker, tmp_path: Path) -> None:
    """A message that was popped twice, after a reset, returns twice, also if the first return is the last copy."""
    broker.send(b"a")
    await broker.pop(queue_id=0, invisible_ms=1_000)
    broker.offsets.replace("G", TOPIC, 0, 0)
    broker.clock.advance(0.5)
    await broker.pop(queue_id=0, invisible_ms=1_000)
    broker.clock.advance(0.5)
    await broker.run()
    broker.clock.advance(0.5)
    async with running(killed(broker, tmp_path / "killed")) as again:
        assert await returned(again) == [b"a", b"a"]


# -- records of others


def timer_record(tag: str, body: bytes, due_ms: int, queue_id: int = 0) -> MessageExtBrokerInner:
    """A record as Apache's broker stores it for its timer."""
    properties = {"TAGS": tag, "TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": REVIVE, "REAL_QID": str(queue_id)}
    return message(body, TIMER, properties=properties)


def put(broker: PopBroker, *records: MessageExtBrokerInner) -> None:
    """Store records of another broker."""
    for each in records:
        assert broker.store.appender.put_message(each).status is PutMessageStatus.PUT_OK
    broker.store.appender.dispatch()


NOW = FakeClock().time_ms()
CHECK_POINT = PopCheckPoint(0, NOW, 60_000, 3, 0, TOPIC, "G", broker_name="broker-a")
NAMED = (0, "G", TOPIC, 0, NOW, "broker-a")


async def test_a_store_of_apache_goes_on(broker: PopBroker, tmp_path: Path) -> None:
    """Its timer has delivered the check points to the revive topic; some acknowledgements are there, some are not."""
    for body in (b"a", b"b", b"c"):
        broker.send(body)
    second = PopCheckPoint(0, NOW + 1, 1_000, 1, 1, TOPIC, "G", queue_offset_diff=[0], broker_name="broker-a")
    broker.send(b"d", 1)
    put(
        broker,
        timer_record("ck", CHECK_POINT.encode(), NOW + 59_000),
        timer_record("ack", AckMsg(1, *NAMED).encode(), NOW + 60_000),
        timer_record("ck", second.encode(), NOW + 1),
        message(CHECK_POINT.encode(), REVIVE, 2, properties={"TAGS": "ck"}),
        message(BatchAckMsg(-1, *NAMED, [0]).encode(), REVIVE, 2, properties={"TAGS": "bAck"}),
        # Dealt with by its revive service.
        message(second.encode(), REVIVE, 1, properties={"TAGS": "ck"}),
    )
    broker.groups.find("G")
    broker.offsets.replace(REVIVE_GROUP, REVIVE, 1, 0)
    broker.offsets.replace("G", TOPIC, 1, 1)
    await broker.reset.store()
    copy = killed(broker, tmp_path / "theirs")
    checkpoint = TimerCheckpoint(last_read_time_ms=NOW + 59_500, last_timer_queue_offset=3)
    (copy.folder / "timercheck").write_bytes(checkpoint.encode())
    for number in range(2):
        async with running(copy):
            assert copy.check_points.count == 1
            assert copy.offsets.query("G", TOPIC, 0) == 3
            assert copy.offsets.query(REVIVE_GROUP, REVIVE, 2) == 1
        # A second start finds its own record of the check point.
        copy = killed(copy, tmp_path / f"theirs-{number}")
    async with running(copy):
        assert await returned(copy) == [b"c"]


async def test_a_timercheck_that_cannot_be_read_is_logged(broker: PopBroker, caplog: pytest.LogCaptureFixture) -> None:
    (broker.folder / "timercheck").write_bytes(b"short")
    put(broker, timer_record("ck", CHECK_POINT.encode(), NOW))
    await broker.recovery.start()
    assert "timercheck is unreadable, so popped messages may return once more" in caplog.text
    assert broker.check_points.count == 1


BROKEN = {
    "no JSON": ("ck", b"{", "PopCheckPoint"),
    "a field is missing": ("ack", b"{}", "AckMsg"),
    "fewer distances than messages": (
        "ck",
        PopCheckPoint(0, NOW, 1, 2, 0, TOPIC, "G", queue_offset_diff=[0]).encode(),
        "n is 2, and d names 1 messages",
    ),
    "a negative number": ("ck", PopCheckPoint(0, NOW, 1, -1, 0, TOPIC, "G").encode(), "n is -1"),
    "no batch": ("order", b"[]", "OrderRecord"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_record_is_logged_and_left_out(
    broker: PopBroker, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    tag, body, text = BROKEN[name]
    broker.send()
    put(broker, timer_record(tag, body, NOW), timer_record("ck", CHECK_POINT.encode(), NOW))
    with caplog.at_level(logging.ERROR):
        await broker.recovery.start()
    assert f"POP: record 0 of {TIMER} is skipped: " in caplog.text
    assert text in caplog.text
    assert broker.check_points.count == 1


async def test_a_batch_that_no_pop_makes_is_logged_and_left_out(
    broker: PopBroker, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"topic":"T","cid":"O","queue_id":0,"offset":0,"info":{"popTime":1,"o":[5,2,1],"l":1}}'
    put(broker, timer_record("order", body, NOW))
    await broker.recovery.start()
    assert "POP: T@O, queue 0: o: [5, 2, 1]; expected the first offset" in caplog.text


async def test_a_check_point_whose_bits_are_all_set_is_closed(broker: PopBroker) -> None:
    done = PopCheckPoint(0, NOW, 1, 3, 0, TOPIC, "G", bit_map=7)
    put(broker, timer_record("ck", done.encode(), NOW))
    await broker.recovery.start()
    assert broker.check_points.count == 0
    await broker.run()


async def test_other_timer_messages_and_unknown_tags_are_none_of_pop(broker: PopBroker) -> None:
    properties = {"TAGS": "ck", "TIMER_OUT_MS": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    put(broker, message(b"{", TIMER, properties=properties), timer_record("other", b"{", NOW))
    await broker.recovery.start()
    assert broker.check_points.count == 0


async def test_a_start_that_cannot_store_what_it_found_fails(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, message(CHECK_POINT.encode(), REVIVE, 2, properties={"TAGS": "ck"}))
    full = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: full)
    with pytest.raises(StoreError, match="a check point cannot be stored again"):
        await broker.recovery.start()


async def test_a_start_serves_others_while_it_reads(
    broker: PopBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_recovery, "_BATCH", 2)
    for _ in range(9):
        broker.send()
        await broker.pop(queue_id=0, most=1)
    turns = 0

    async def count(_delay: float) -> None:
        nonlocal turns
        turns += 1

    copy = killed(broker, tmp_path / "killed")
    monkeypatch.setattr(asyncio, "sleep", count)
    async with running(copy):
        # Of nine records and nine open check points.
        assert turns >= 2 * (9 // 2)
