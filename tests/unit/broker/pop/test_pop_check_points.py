"""Open check points: their records, what is due, and the place before which no record matters."""

import asyncio

import pytest

from rocketbroker.broker.pop import pop_check_points
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.pop_check_point import AckMsg, BatchAckMsg, PopCheckPoint
from rocketbroker.codec.message.pop_info import REVIVE_GROUP
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.put_message import ACKNOWLEDGED, Acknowledgement, PutMessageResult, PutMessageStatus
from tests.support.pop_broker import TOPIC, PopBroker
from tests.support.stores import read_queue
from tests.support.timers import Timer

TIMER = "rmq_sys_wheel_timer"
FULL = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")


def records(broker: PopBroker) -> list[MessageExt]:
    """The messages of the timer's queue."""
    broker.store.appender.dispatch()
    return read_queue(broker.store, TIMER, 0)


def place_in_file(broker: PopBroker) -> int:
    """The place that the offsets have."""
    return broker.offsets.query(REVIVE_GROUP, TIMER, 0)


async def test_a_pop_and_its_acknowledgements_are_records_of_apache(broker: PopBroker) -> None:
    for _ in range(3):
        broker.send()
    first, second, third = await broker.pop(queue_id=0, invisible_ms=30_000)
    await broker.ack("G", second)
    broker.check_points.acknowledge(broker.check_points.queues.get(TOPIC, "G", 0), 0, first.info.pop_time, [0, 2, 99])
    check_point, ack, batch = records(broker)
    now, out_ms = broker.clock.time_ms(), broker.clock.time_ms() + 30_000
    assert PopCheckPoint.decode(check_point.body) == PopCheckPoint(
        0, now, 30_000, 3, 0, TOPIC, "G", broker_name="broker-a"
    )
    assert AckMsg.decode(ack.body) == AckMsg(1, 0, "G", TOPIC, 0, now, "broker-a")
    assert BatchAckMsg.decode(batch.body) == BatchAckMsg(-1, 0, "G", TOPIC, 0, now, "broker-a", [0, 2])
    properties = check_point.properties
    assert properties["TAGS"] == "ck"
    assert properties["UNIQ_KEY"] == f"T@0@0@G@{now}@broker-a@ck"
    assert properties["REAL_TOPIC"] == "rmq_sys_REVIVE_LOG_C"
    assert properties["REAL_QID"] == str(third.info.revive_qid)
    assert properties["TIMER_DELIVER_MS"] == str(out_ms - 1_000)
    assert int(properties["TIMER_OUT_MS"]) == out_ms - 1_000 - 100
    assert [each.properties["TAGS"] for each in (ack, batch)] == ["ack", "bAck"]
    assert ack.properties["TIMER_DELIVER_MS"] == str(out_ms)


async def test_32_messages_have_the_bits_of_a_java_int(broker: PopBroker) -> None:
    for _ in range(32):
        broker.send()
    await broker.pop(queue_id=0)
    queue = broker.check_points.queues.get(TOPIC, "G", 0)
    (found,) = queue.open.values()
    broker.check_points.acknowledge(queue, 0, found.pop_time, [31])
    broker.check_points.store(found)
    assert PopCheckPoint.decode(records(broker)[-1].body).bit_map == -(1 << 31)
    await broker.recovery.stop()
    await broker.recovery.start()
    (again,) = queue.open.values()
    assert again.unacknowledged == list(range(31))


async def test_acknowledged_messages_are_acknowledged_once(broker: PopBroker) -> None:
    broker.send()
    (found,) = await broker.pop()
    queue = broker.check_points.queues.get(TOPIC, "G", 0)
    named = queue, 0, found.info.pop_time
    assert [broker.check_points.acknowledge(*named, [0]).number for _ in range(2)] == [1, 0]
    assert len(records(broker)) == 2
    assert (queue.open, queue.in_flight, broker.check_points.count) == ({}, 0, 0)


async def test_nothing_is_acknowledged_or_changed_without_a_record(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send()
    (found,) = await broker.pop()
    queue, pop_time = broker.check_points.queues.get(TOPIC, "G", 0), found.info.pop_time
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    assert broker.check_points.acknowledge(queue, 0, pop_time, [0]) == (FULL, 0)
    assert broker.check_points.change(queue, 0, pop_time, 0, 5_000)[0] is FULL
    assert queue.in_flight == 1
    assert list(queue.open) == [(0, pop_time)]
    with pytest.raises(StoreError, match=r"cannot be stored again: \[DISK_FULL\] full"):
        broker.check_points.store(queue.open[0, pop_time])


async def test_a_change_in_the_same_millisecond_makes_another_handle(broker: PopBroker) -> None:
    broker.send()
    (found,) = await broker.pop()
    for _ in range(3):
        old, found = found, await broker.change("G", found, 10_000)
        assert broker.check_points.count == 1
        await broker.ack("G", old)
        assert broker.check_points.count == 1
    queue = broker.check_points.queues.get(TOPIC, "G", 0)
    assert broker.check_points.change(queue, 0, 1, 0, 1)[0].status is PutMessageStatus.PUT_OK
    assert queue.in_flight == 1


async def test_check_points_are_due_from_their_tick_on(broker: PopBroker) -> None:
    for invisible_ms in (1_000, 1_001, 1_100, 5_000):
        broker.send()
        await broker.pop(queue_id=0, invisible_ms=invisible_ms)
    begin = broker.clock.time_ms()
    due = broker.check_points.due
    assert broker.check_points.next_due_ms == begin + 1_000
    assert due(begin + 999, 9) == []
    (first,) = due(begin + 1_000, 9)
    broker.check_points.postpone(first, begin + 9_000)
    assert [each.invisible_time for each in due(begin + 1_100, 9)] == [1_001, 1_100]
    assert len(due(begin + 1_100, 1)) == 1


# -- the place


async def test_the_place_passes_what_is_closed_and_on_disk(broker: PopBroker) -> None:
    for _ in range(2):
        broker.send()
    (first,) = await broker.pop(queue_id=0, most=1)
    broker.clock.advance(1)
    (second,) = await broker.pop(queue_id=0, most=1)
    await broker.ack("G", second)
    await broker.sync()
    broker.check_points.advance()
    assert broker.check_points.place == 0
    assert broker.check_points.first_pending_offset() == records(broker)[0].commit_log_offset
    await broker.ack("G", first)
    broker.check_points.advance()
    assert (broker.check_points.place, place_in_file(broker)) == (4, -1)
    await broker.sync()
    broker.check_points.advance()
    assert place_in_file(broker) == 4
    assert broker.check_points.first_pending_offset() is None


async def test_the_place_passes_ordered_batches_once_their_file_has_them(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send()
    await broker.pop("O", 0, order=True, attempt_id="1")
    await broker.sync()
    written = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(broker.orders, "flush", lambda: written)
    broker.check_points.advance()
    broker.check_points.advance()
    assert place_in_file(broker) == -1
    written.set_result("")
    await asyncio.sleep(0)
    broker.check_points.advance()
    assert place_in_file(broker) == 1


async def test_check_points_far_back_are_stored_again(broker: PopBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_check_points, "_MOST_READ", 3)
    monkeypatch.setattr(pop_check_points, "_READ_FOR_EACH", 1)
    for _ in range(4):
        broker.send()
    found = []
    for _ in range(2):
        found += await broker.pop(queue_id=0, most=2)
        broker.clock.advance(1)
    await broker.ack("G", found[0])
    await broker.ack("G", found[2])
    assert not broker.check_points.store_again()
    assert broker.check_points.place == 4
    for record in [PopCheckPoint.decode(each.body) for each in records(broker)[-2:]]:
        assert (record.start_offset % 2, record.bit_map, record.re_put_times) == (0, 1, "0")
    assert broker.check_points.count == 2


async def test_a_check_point_that_cannot_be_stored_again_stays(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_check_points, "_MOST_READ", 0)
    monkeypatch.setattr(pop_check_points, "_READ_FOR_EACH", 0)
    broker.send()
    await broker.pop()
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    assert not broker.check_points.store_again()
    assert broker.check_points.place == 0
    assert broker.check_points.next_due_ms is not None


async def test_no_call_looks_at_all_of_very_many_check_points(broker: PopBroker) -> None:
    """A million are open, and the oldest is the last to close."""
    check_points, queue = broker.check_points, broker.check_points.queues.get(TOPIC, "G", 0)
    number = 20 * pop_check_points._MOST_STALE
    made = [OpenCheckPoint(queue, each, each, 60_000, range(each, each + 1), 1, 0, each) for each in range(number)]
    for each in made:
        check_points.add(each)
    for each in reversed(made):
        check_points.drop(each, 1)
    calls = 0
    while check_points._by_place:
        before = len(check_points._by_place)
        assert check_points.place <= number
        looked, calls = before - len(check_points._by_place), calls + 1
        assert 0 < looked <= pop_check_points._MOST_STALE
    assert calls == 20
    assert check_points.count == 0


async def test_very_many_check_points_are_forgotten_at_once_and_freed_in_steps(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_check_points, "_MOST_FREED", 100)
    check_points, queue = broker.check_points, broker.check_points.queues.get(TOPIC, "G", 0)
    for each in range(1_000):
        check_points.add(OpenCheckPoint(queue, each, each, 60_000, range(each, each + 1), 1, 0, each))
    seen = []

    async def look(_delay: float) -> None:
        seen.append((check_points.count, check_points.next_due_ms, check_points.place, queue.open, queue.in_flight))

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", look)
        await check_points.clear()
    # Each check point has an entry by queue, by time and by place.
    assert len(seen) >= 30
    assert all(each == (0, None, 0, {}, 0) for each in seen)


async def test_store_again_serves_others_while_it_passes_closed_ones(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_check_points, "_MOST_STALE", 2)
    monkeypatch.setattr(pop_check_points, "_MOST_READ", 1)
    monkeypatch.setattr(pop_check_points, "_READ_FOR_EACH", 0)
    found = []
    for _ in range(6):
        broker.send()
        found += await broker.pop(queue_id=0, most=1)
    for each in found[:5]:
        await broker.ack("G", each)
    turns = 1
    while broker.check_points.store_again():
        turns += 1
        assert turns < 9
    # The closed ones, two at a time, and then the last one.
    assert turns > 2
    assert broker.check_points.count == 1


# -- offsets that are set


async def test_an_offset_whose_record_is_refused_is_logged(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send()
    await broker.pop(queue_id=0)
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    broker.offsets.replace("G", TOPIC, 0, 0)
    assert "group G may continue in topic T, queue 0, where it was before its offset was set: full" in caplog.text


async def test_an_offset_that_the_disk_refuses_is_not_answered(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send()
    await broker.pop(queue_id=0)
    broker.offsets.replace("G", TOPIC, 0, 0)

    async def refuse(_offset: int) -> Acknowledgement:
        return ACKNOWLEDGED._replace(status=PutMessageStatus.READ_ONLY, reason="the disk is broken")

    monkeypatch.setattr(broker.store.flusher, "wait_flushed", refuse)
    with pytest.raises(StoreError, match="the disk is broken"):
        await broker.reset.store()


# -- the timer


async def test_the_timer_leaves_out_records_and_delivers_messages_of_users(broker: PopBroker) -> None:
    """Whoever stored them, and whatever tags the messages of users have."""
    timer = Timer(broker.store, broker.clock)
    timer.service._bypass = broker.bypass
    await timer.load()
    for tag in ("ck", "ack", "bAck", "order"):
        timer.put(tag.encode(), TIMER_DELAY_MS=500, TAGS=tag)
    broker.send()
    (found,) = await broker.pop(invisible_ms=1_000)
    await broker.ack("G", found)
    broker.bypass.clear()  # as after a start: each of the records is read
    broker.send()
    await broker.pop(invisible_ms=1_000)
    broker.clock.advance(10)
    await timer.run()
    assert sorted(timer.bodies()) == [b"ack", b"bAck", b"ck", b"order"]
    assert broker.store.queues.find("rmq_sys_REVIVE_LOG_C", 0) is None
