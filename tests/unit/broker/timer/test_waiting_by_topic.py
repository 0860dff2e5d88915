"""Counts of the timer's waiting messages by topic, through restarts, kills and cancels."""

import msgspec

from rocketbroker.broker.persist.config_manager import encode_file
from rocketbroker.broker.timer.waiting_by_topic import WaitingByTopic
from rocketbroker.codec.remoting.bodies.offset import TimerMetricsSerializeWrapper


def counts(timer):
    return timer.service.progress.waiting.counts


def test_messages_are_added_and_removed():
    waiting = WaitingByTopic()
    for queue_offset, topic in enumerate(["A", "B", "A"]):
        waiting.add(topic, queue_offset, 1_000 + queue_offset)
    waiting.remove(["B", "A", "Unknown"], 2_000)

    metrics = waiting.metrics()
    assert {topic: (each.count, each.time_stamp) for topic, each in metrics.timing_count.items()} == {"A": (1, 2_000)}
    assert (metrics.data_version.counter, metrics.data_version.timestamp) == (5, 2_000)


def test_what_an_earlier_process_counted_is_not_counted_again():
    waiting = WaitingByTopic()
    waiting.restore({"A": 2, "B": 0}, 7)
    waiting.add("A", 6, 1)
    waiting.add("B", 7, 1)
    waiting.added_to(8)
    waiting.added_to(3)

    assert (waiting.counts, waiting.counted_to) == ({"A": 2, "B": 1}, 8)


async def test_a_message_counts_until_it_is_delivered(timer, clock):
    for topic, delay_s in (("A", 5), ("A", 7_200), ("B", 5)):
        timer.put(topic=topic, TIMER_DELAY_SEC=delay_s)
    await timer.run()
    assert counts(timer) == {"A": 2, "B": 1}

    clock.advance(7)
    await timer.run()
    assert counts(timer) == {"A": 1}

    clock.advance(7_200)
    await timer.run()
    assert counts(timer) == {}


async def test_a_message_that_is_stored_again_on_the_way_counts_once(again, clock):
    timer = await again(timer_roll_window_slot=10)
    timer.put(TIMER_DELAY_SEC=25)
    for _ in range(3):
        await timer.run()
        assert counts(timer) == {"T": 1}
        clock.advance(8)
    clock.advance(10)
    await timer.run()
    assert (timer.bodies(), counts(timer)) == ([b"body"], {})


async def test_a_cancelled_message_counts_until_its_time_and_the_cancel_never(timer, clock):
    timer.put(TIMER_DELAY_SEC=5, UNIQ_KEY="k")
    timer.put(TIMER_DELAY_SEC=9_000)
    timer.put(TIMER_DELAY_SEC=5, TIMER_DEL_UNIQKEY="k")
    await timer.run()
    assert counts(timer) == {"T": 2}

    clock.advance(7)
    await timer.run()
    assert (timer.bodies(), counts(timer)) == ([], {"T": 1})


async def test_the_counts_survive_a_restart(timer, again, clock):
    for delay_s in (5, 7_200, 9_000):
        timer.put(TIMER_DELAY_SEC=delay_s)
    await timer.run()
    clock.advance(7)
    await timer.run()
    await timer.stop()

    timer = await again()
    assert counts(timer) == {"T": 2}
    await timer.run()
    assert counts(timer) == {"T": 2}


async def test_the_counts_survive_a_kill_behind_the_slot_files(timer, again):
    timer.put(TIMER_DELAY_SEC=7_200)
    await timer.run()
    await timer.service.write()
    timer.put(TIMER_DELAY_SEC=7_200)
    await timer.run()
    # Progress is written more often than the slot files: it counts a message that the next process reads again.
    timer.service.progress.persist()
    timer.put(TIMER_DELAY_SEC=7_200)

    timer = await again()
    assert counts(timer) == {"T": 2}
    await timer.run()
    assert counts(timer) == {"T": 3}


async def test_all_messages_are_read_again_if_the_file_cannot_count_them(timer, again, clock):
    for delay_s in (5, 7_200, 9_000):
        timer.put(b"%d" % delay_s, TIMER_DELAY_SEC=delay_s)
    await timer.run()
    clock.advance(7)
    await timer.run()
    await timer.stop()
    whole = timer.service.progress.parse(timer.path.read_bytes())

    async def start(**fields: object):
        timer.path.write_bytes(encode_file(msgspec.structs.replace(whole, **fields)))
        found = await again()
        await found.run()
        return found

    # A file of an earlier version; messages that a power loss took; a count that a slave lost by following its master.
    for lost in ({"waiting": {}, "counted_to": 0}, {"waiting": {"T": 5}, "counted_to": 99}):
        assert counts(await start(**lost)) == {"T": 2}
    timer = await start()
    timer.service.progress.follow(1, 1_000_000, 1, 1)
    assert counts(timer) == {}

    clock.advance(9_000)
    timer = await start(waiting={}, counted_to=0)
    assert (timer.bodies(), counts(timer)) == ([b"5", b"7200", b"9000"], {})


async def test_counts_that_were_too_high_end_when_nothing_waits(timer, clock):
    timer.service.progress.waiting.restore({"Gone": 3}, 0)
    timer.put(TIMER_DELAY_SEC=5)
    await timer.run()
    clock.advance(7)
    await timer.run()
    assert counts(timer) == {}


async def test_slaves_tell_an_empty_table_from_none(timer):
    assert timer.service.metrics() != TimerMetricsSerializeWrapper()


async def test_a_timer_that_does_not_run_has_no_counts(timer):
    assert timer.service.metrics() is not None
    await timer.stop()
    assert timer.service.metrics() is None
