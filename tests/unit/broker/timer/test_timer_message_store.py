import asyncio

import pytest

from rocketbroker.broker.timer.timer_delivery import BATCH
from rocketbroker.broker.timer.timer_message_store import LOAD_AHEAD_MS
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.common import open_files
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.lifecycle import TICK_S
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from tests.support.golden_store import records
from tests.support.stores import read_queue
from tests.support.timers import TIMER_TOPIC, Timer
from tests.support.waiting import until


@pytest.mark.proves(
    "Delayed messages",
    "timer messages (`TIMER_DELIVER_MS`, `TIMER_DELAY_SEC`, `TIMER_DELAY_MS`) at any time up to "
    "`timerMaxDelaySec`, over a broker that is killed",
)
async def test_not_before_its_time_and_within_the_precision_after_it(timer, clock):
    timer.put(TIMER_DELAY_MS=3000)  # due at …171,558, in the slot …171,000
    clock.advance(3.441)
    await timer.run()
    assert timer.delivered() == []
    clock.advance(0.001)
    await timer.run()
    (message,) = timer.delivered()
    assert message.store_timestamp == clock.time_ms() == 1_795_255_172_000
    assert (message.body, message.born_timestamp, message.reconsume_times) == (b"body", 1, 2)
    clock.advance(3600)
    await timer.run()
    assert len(timer.delivered()) == 1


@pytest.mark.proves(
    "Delayed messages",
    "timer messages (`TIMER_DELIVER_MS`, `TIMER_DELAY_SEC`, `TIMER_DELAY_MS`) at any time up to "
    "`timerMaxDelaySec`, over a broker that is killed",
)
async def test_the_copy_has_the_properties_of_the_recorded_one(store, clock, timer):
    recorded = [decode_record(record) for _, record in records("clean")]
    waits, copy = (
        next(m for m in recorded if m.topic == topic and "TIMER_OUT_MS" in m.properties)
        for topic in (TIMER_TOPIC, "StDelay")
    )
    assert waits.store_timestamp == clock.time_ms(), "the clock of these tests"
    sent = {
        name: value
        for name, value in waits.properties.items()
        if name not in {"TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID"}
    }
    message = MessageExtBrokerInner("StDelay", 0, waits.body, encode_properties(sent))
    timer.rewrite(message)
    store.appender.put_message(message)
    store.appender.dispatch()
    (stored,) = read_queue(store, TIMER_TOPIC, 0)
    assert stored.properties == waits.properties
    clock.advance((copy.store_timestamp - waits.store_timestamp) / 1000)
    await timer.run()
    (delivered,) = timer.delivered("StDelay", 0)
    own = {"TIMER_DEQUEUE_MS": str(clock.time_ms())}
    assert delivered.properties == {**copy.properties, **own}
    assert delivered.body == copy.body


async def test_nothing_is_delivered_while_another_broker_may_deliver(store, clock):
    may_deliver = [False]
    timer = await Timer(store, clock, may_deliver=lambda: may_deliver[0]).load()
    timer.put(b"due", TIMER_DELAY_SEC=1)
    clock.advance(10)
    await timer.run()
    assert timer.delivered() == []
    may_deliver[0] = True
    await timer.run()
    assert timer.bodies() == [b"due"]


async def test_slots_are_delivered_in_their_order(timer, clock):
    for number, delay_s in enumerate((9, 3, 700, 3, 1200, 1)):
        timer.put(b"%d" % number, TIMER_DELAY_SEC=delay_s)
    clock.advance(10)
    await timer.run()
    assert timer.bodies() == [b"5", b"1", b"3", b"0"]
    clock.advance(3600)
    await timer.run()
    assert timer.bodies()[4:] == [b"2", b"4"]


async def test_many_of_one_slot(timer, clock):
    count = 3 * BATCH + 1
    for number in range(count):
        timer.put(b"%d" % number, TIMER_DELAY_SEC=5)
    clock.advance(6)
    await timer.run()
    assert timer.bodies() == [b"%d" % number for number in range(count)]


async def test_messages_that_come_all_the_time_do_not_keep_those_that_are_due(timer, store, clock, monkeypatch):
    timer.put(b"due", TIMER_DELAY_SEC=1)
    clock.advance(3)
    read = store.entry_reader.records

    async def read_and_send(queue, entries):
        for _ in entries:
            timer.put(b"new", TIMER_DELAY_SEC=60)
        return await read(queue, entries)

    monkeypatch.setattr(store.entry_reader, "records", read_and_send)
    for _ in range(3):
        await timer.service.advance()
    assert timer.bodies() == [b"due"]


async def test_a_message_for_now_takes_no_way_round(timer):
    timer.put(TIMER_DELIVER_MS=1)
    assert len(timer.delivered()) == 1


async def test_it_says_when_to_look_again(timer, clock):
    assert await timer.service.advance() == TICK_S
    timer.put(TIMER_DELAY_MS=3000)
    await timer.run()
    clock.advance(3.4)
    assert await timer.service.advance() == pytest.approx(0.042)
    clock.advance(0.041)
    assert await timer.service.advance() == 0.005


async def test_later_messages_wait_in_files(timer, clock):
    timer.put(b"soon", TIMER_DELAY_SEC=30)
    timer.put(b"late", TIMER_DELAY_SEC=86_400)
    await timer.run()
    await timer.service.write()
    assert len(timer.slot_files) == 2
    assert timer.service.runtime_info()["timerCongestNum"] == "2"
    clock.advance(31)
    await timer.run()
    assert timer.bodies() == [b"soon"]
    clock.advance(86_400 - 31 - LOAD_AHEAD_MS / 1000)
    await timer.run()
    clock.advance(LOAD_AHEAD_MS / 1000 + 1)
    await timer.run()
    assert timer.bodies() == [b"soon", b"late"]
    assert timer.service.runtime_info()["timerCongestNum"] == "0"


@pytest.mark.proves(
    "Delayed messages",
    "messages that wait for days are stored again on the way, and the CommitLog is not cleaned under them",
)
async def test_messages_far_ahead_are_stored_again_on_the_way(store, again, clock):
    timer = await again(timer_roll_window_slot=10)
    timer.put(TIMER_DELAY_SEC=28, UNIQ_KEY="K")
    for _ in range(28):
        await timer.run()
        assert timer.delivered() == []
        clock.advance(1)
    clock.advance(1)
    await timer.run()
    (message,) = timer.delivered()
    times = [copy.properties.get("TIMER_ROLL_TIMES") for copy in read_queue(store, TIMER_TOPIC, 0)]
    assert times == [None, "1", "2"]
    assert message.properties["TIMER_ROLL_TIMES"] == "2"
    assert (message.topic, message.properties["UNIQ_KEY"]) == ("T", "K")


@pytest.mark.proves("Delayed messages", "timer messages recalled")
async def test_a_canceled_message_is_never_delivered(timer, again, clock):
    for key in "ABCD":
        timer.put(key.encode(), TIMER_DELAY_SEC=60, UNIQ_KEY=key)
    out_ms = timer.service._clock.time_ms() + 60_000
    await timer.run()
    clock.advance(5)
    timer.put(topic="T", TIMER_DEL_UNIQKEY="A", TIMER_DELIVER_MS=out_ms, UNIQ_KEY="A")
    timer.put(topic="T", TIMER_DEL_UNIQKEY="T+B", TIMER_DELIVER_MS=out_ms, UNIQ_KEY="B")
    timer.put(topic="Other", TIMER_DEL_UNIQKEY="C", TIMER_DELIVER_MS=out_ms, UNIQ_KEY="C")
    await timer.run()
    await timer.stop()
    timer = await again()
    clock.advance(60)
    await timer.run()
    assert timer.bodies() == [b"C", b"D"]
    assert timer.delivered("Other") == []


@pytest.mark.parametrize("after_s", [1, 12, 26])
async def test_a_cancel_finds_a_message_that_was_stored_again(again, clock, after_s):
    timer = await again(timer_roll_window_slot=10)
    sent = timer.put(TIMER_DELAY_SEC=28, UNIQ_KEY="K")
    out_ms = int(dict(pair.split("\1") for pair in sent.properties.decode().split("\2") if pair)["TIMER_OUT_MS"])
    for second in range(30):
        if second == after_s:
            timer.put(TIMER_DEL_UNIQKEY="K", TIMER_DELIVER_MS=out_ms + 1, UNIQ_KEY="K")
        await timer.run()
        clock.advance(1)
    await timer.run()
    assert timer.delivered() == []


@pytest.mark.proves(
    "Delayed messages",
    "any course of sends, recalls, restarts, kills and jumps of the clock: nothing early or lost, after a"
    " clean restart nothing twice",
)
async def test_a_clock_that_is_set_back_delivers_nothing_early_lost_or_twice(timer, again, clock):
    timer.put(b"first", TIMER_DELAY_SEC=10)
    clock.advance(3600)
    await timer.run()
    clock.advance(-3600)
    timer.put(b"second", TIMER_DELAY_SEC=20)
    await timer.run()
    await timer.stop()
    timer = await again()
    clock.advance(19)
    await timer.run()
    assert timer.bodies() == [b"first"]
    clock.advance(2)
    await timer.run()
    await timer.stop()
    timer = await again()
    clock.advance(7200)
    await timer.run()
    assert timer.bodies() == [b"first", b"second"]


async def test_messages_behind_one_whose_queue_has_no_room_are_delivered(timer, store, clock, monkeypatch, caplog):
    limits = {"mapped": 0}
    monkeypatch.setattr(open_files.MAPPINGS, "_known", 0)
    monkeypatch.setattr(open_files, "max_map_count", lambda: 10_000)
    monkeypatch.setattr(open_files, "mapped_count", lambda: limits["mapped"])
    timer.put(topic="Lawful", TIMER_DELAY_SEC=1)
    clock.advance(2)
    await timer.run()
    timer.put(b"stuck", topic="Stuck", TIMER_DELAY_SEC=1)
    timer.put(b"lawful", topic="Lawful", TIMER_DELAY_SEC=1)
    timer.put(b"later", topic="Lawful", TIMER_DELAY_SEC=5)
    limits["mapped"] = 10_000

    clock.advance(10)
    await timer.run()
    assert [each.body for each in read_queue(store, "Lawful", 1)] == [b"body", b"lawful", b"later"]
    assert "timer message for topic Stuck could not be stored" in caplog.text
    limits["mapped"] = 0
    clock.advance(280)
    await timer.run()
    assert read_queue(store, "Stuck", 1) == []
    clock.advance(30)
    await timer.run()

    (found,) = read_queue(store, "Stuck", 1)
    assert (found.body, found.tags) == (b"stuck", "A")


async def test_a_full_disk_is_waited_for(timer, store, clock, monkeypatch):
    for number in range(3):
        timer.put(b"%d" % number, TIMER_DELAY_SEC=1)
    clock.advance(3)
    put, refusals = store.appender.put_copy, [1, 0, 1, 1]

    def refuse_sometimes(message):
        if refusals and refusals.pop():
            return PutMessageResult(PutMessageStatus.DISK_FULL, reason="no room")
        return put(message)

    monkeypatch.setattr(store.appender, "put_copy", refuse_sometimes)
    for _ in range(4):
        await timer.run()
    assert timer.bodies() == [b"0", b"1", b"2"]


async def test_a_message_that_does_not_say_where_to_is_discarded_and_the_next_delivered(timer, store, clock, caplog):
    for properties in (
        {},
        {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T", "REAL_QID": "1"},
        {"TIMER_OUT_MS": "1", "REAL_QID": "1"},
        {"TIMER_OUT_MS": "1", "REAL_TOPIC": "T", "REAL_QID": str(2**31)},
        {"TIMER_OUT_MS": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ):
        store.appender.put_message(MessageExtBrokerInner(TIMER_TOPIC, 0, b"", encode_properties(properties)))
    timer.put(TIMER_DELAY_SEC=1)
    clock.advance(3)
    await timer.run()
    assert len(timer.delivered()) == 1
    assert caplog.text.count("is discarded: it names no delivery time, topic and queue") == 5


async def test_a_finer_precision_holds_when_nothing_waits(timer, again, clock, caplog):
    timer.put(TIMER_DELAY_MS=3000)
    await timer.stop()
    timer = await again(timer_precision_ms=100)
    assert timer.service.precision_ms == 1000
    assert "timerPrecisionMs stays 1000 until all waiting timer messages are delivered" in caplog.text
    clock.advance(3.441)
    await timer.run()
    assert timer.delivered() == []
    clock.advance(0.001)
    await timer.run()
    assert len(timer.delivered()) == 1
    clock.advance(600)
    await timer.service.remove_delivered_files()
    await timer.stop()
    timer = await again(timer_precision_ms=100)
    assert timer.service.precision_ms == 100
    assert await timer.service.advance() == 0.1


async def test_a_cancel_finds_its_message_though_the_precision_was_made_coarser(again, clock):
    timer = await again(timer_precision_ms=100)
    deliver_ms = clock.time_ms() + 3550
    timer.put(TIMER_DELIVER_MS=deliver_ms, UNIQ_KEY="K")
    await timer.run()
    await timer.stop()
    timer = await again()
    timer.put(TIMER_DEL_UNIQKEY="K", TIMER_DELIVER_MS=deliver_ms, UNIQ_KEY="K")
    for _ in range(6):
        clock.advance(1)
        await timer.run()
    assert timer.delivered() == []


async def test_the_oldest_message_that_waits_is_known(store, timer, clock):
    assert timer.service.first_pending_offset() is None
    store.appender.put_message(MessageExtBrokerInner("Other", 0, b""))
    first = store.commit_log.max_offset
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    second = store.commit_log.max_offset
    timer.put(b"later", TIMER_DELAY_SEC=9000)
    assert timer.service.first_pending_offset() == first, "not taken in yet"
    await timer.run()
    assert timer.service.first_pending_offset() == first
    await timer.service.write()
    assert timer.service.first_pending_offset() == first
    clock.advance(7202)
    await timer.run()
    assert timer.service.first_pending_offset() == second
    clock.advance(7202)
    await timer.run()
    assert timer.service.first_pending_offset() is None


async def test_a_slave_keeps_what_its_master_still_has_to_deliver(store, timer, clock):
    """The slave has the log of the master and follows its progress; its own timer never ran."""
    slave = Timer(store, clock)
    first = store.commit_log.max_offset
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    for _ in range(70):
        timer.put(b"soon", TIMER_DELAY_SEC=60)
    await slave.service.pass_delivered()
    assert slave.service.first_pending_offset() == first, "no progress of the master is known"

    clock.advance(62)
    await timer.run()
    await store.flusher.sync()
    timer.service.progress.advance()
    slave.service.follow(timer.service.checkpoint())
    await slave.service.pass_delivered()
    assert slave.service.first_pending_offset() == first, "the first message is due later than the others"

    clock.advance(7202)
    await timer.run()
    await store.flusher.sync()
    timer.service.progress.advance()
    slave.service.follow(timer.service.checkpoint())
    await slave.service.pass_delivered()
    assert slave.service.first_pending_offset() is None

    waiting = store.commit_log.max_offset
    timer.put(b"more", TIMER_DELAY_SEC=60)
    await slave.service.pass_delivered()
    assert slave.service.first_pending_offset() == waiting

    # As one that acts as master for a while, and stops.
    await slave.service.start()
    clock.advance(62)
    await slave.run()
    await slave.stop()
    await slave.service.pass_delivered()
    assert slave.service.first_pending_offset() is None


async def test_it_runs_by_itself_and_stops(timer, again, clock, monkeypatch):
    monkeypatch.setattr("rocketbroker.broker.timer.timer_message_store.WRITE_INTERVAL_S", 0.0)
    timer = await again(timer_flush_interval_ms=100)
    await timer.service.start()
    timer.put(b"soon", TIMER_DELAY_SEC=1)
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    clock.advance(3)
    async with asyncio.timeout(60):
        while not (timer.delivered() and timer.slot_files):  # noqa: ASYNC110 - the store tells a listener only
            await asyncio.sleep(0.01)
    await timer.stop()
    timer = await again()
    clock.advance(7200)
    await timer.run()
    assert timer.bodies() == [b"soon", b"late"]


async def test_due_messages_do_not_wait_for_a_file_that_is_needed_later(timer, clock):
    timer.put(b"later", TIMER_DELAY_SEC=650)
    timer.put(b"due", TIMER_DELAY_SEC=600)
    await timer.run()
    clock.advance(568)  # the file of the one is in memory, that of the other is to be loaded
    await timer.run()
    assert timer.service._wheel.next_file is not None
    clock.advance(31)
    await timer.service._files_lock.acquire()
    async with asyncio.timeout(60):
        await timer.run()
        clock.advance(3)
        await timer.run()
    assert timer.bodies() == [b"due"]
    timer.service._files_lock.release()
    clock.advance(600)
    await timer.run()
    assert timer.bodies() == [b"due", b"later"]


async def test_how_late_it_is_is_reported_in_seconds(timer, clock):
    timer.put(TIMER_DELAY_SEC=10)
    await timer.run()
    clock.advance(10)
    assert timer.service.runtime_info()["timerReadBehind"] == "0"
    clock.advance(42.5)
    precision_s = timer.service.precision_ms / 1000
    assert int(timer.service.runtime_info()["timerReadBehind"]) in {int(42.5 - precision_s), int(42.5)}
    await timer.run()
    assert timer.bodies() == [b"body"]
    assert timer.service.runtime_info()["timerReadBehind"] == "0"


async def test_rates_are_reported_as_they_were_measured(again, clock):
    timer = await again(timer_flush_interval_ms=100)
    timer.service._rates.measure(asyncio.get_running_loop().time() - 1, 0, 0)
    for _ in range(30):
        timer.put(TIMER_DELAY_SEC=10)
    timer.put(TIMER_DELAY_SEC=1)
    await timer.run()
    clock.advance(3)
    await timer.run()
    keeping = asyncio.ensure_future(timer.service._keep())
    await until(lambda: timer.service._rates.taken_in > 0)
    keeping.cancel()

    rates, info = timer.service._rates, timer.service.runtime_info()
    assert rates.taken_in > rates.delivered > 0
    assert info["timerEnqueueTps"] == f"{rates.taken_in:.1f}"
    assert info["timerDequeueTps"] == f"{rates.delivered:.1f}"


async def test_nothing_is_delivered_while_that_is_stopped(timer, clock):
    timer.put(b"a", TIMER_DELAY_MS=1_000)
    apply_updates([timer.config], {"timerStopDequeue": "true"})
    clock.advance(10)
    await timer.run()
    assert timer.bodies() == []
    apply_updates([timer.config], {"timerStopDequeue": "false"})

    await timer.run()
    assert timer.bodies() == [b"a"]


async def test_messages_stored_while_none_are_read_are_delivered_late_but_once(timer, again, clock):
    timer.put(b"before", TIMER_DELAY_MS=5_000)
    await timer.run()
    apply_updates([timer.config], {"timerStopEnqueue": "true"})
    timer.put(b"late", TIMER_DELAY_MS=1_000)
    clock.advance(10)
    await timer.run()
    assert timer.bodies() == [b"before"]
    await timer.service.write()

    timer = await again()
    await timer.run()
    assert timer.bodies() == [b"before", b"late"]
