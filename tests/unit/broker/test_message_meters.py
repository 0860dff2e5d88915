"""Counts of messages for metrics."""

import pytest

from rocketbroker.broker.message_meters import DELAY, FIFO, NORMAL, TRANSACTION, MessageMeters, SendMeter

KEY = b"__SHARDINGKEY\x01k\x02"


@pytest.mark.parametrize(
    ("stored_in", "properties", "counted"),
    [
        ("T", b"TAGS\x01A\x02", ("T", NORMAL)),
        ("T", KEY, ("T", FIFO)),
        ("SCHEDULE_TOPIC_XXXX", b"DELAY\x011\x02", ("SCHEDULE_TOPIC_XXXX", DELAY)),
        ("rmq_sys_wheel_timer", KEY, ("rmq_sys_wheel_timer", FIFO)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", KEY, ("RMQ_SYS_TRANS_HALF_TOPIC", TRANSACTION)),
    ],
)
def test_a_send_counts_by_type_where_it_is_stored(stored_in: str, properties: bytes, counted: tuple[str, str]):
    meters = MessageMeters()
    SendMeter(meters, "T").sent(stored_in, properties, 2048, 2)

    traffic = meters.sends[counted]
    assert (traffic.nums, traffic.size, traffic.sizes.count, traffic.sizes.buckets[0]) == (2, 2048, 1, 1)
    assert sum(each.nums for each in meters.sends.values()) == 2


def test_dead_letters_do_not_count_as_sends():
    meters = MessageMeters()
    SendMeter(meters, "T").sent("%DLQ%G", b"", 100)

    assert not any(each.nums for each in meters.sends.values())


def test_sends_that_came_together_count_by_their_own_sizes():
    meters = MessageMeters()
    bodies = [bytes(500), bytes(5000), bytes(500)]
    SendMeter(meters, "T").sent_together([b""] * 3, bodies, 6000 + 3 * 200, 3)

    sizes = meters.sends["T", NORMAL].sizes
    assert (sizes.buckets[:3], sizes.count, sizes.sum) == ([2, 0, 1], 3, 6600)


def test_sends_of_one_bucket_count_at_once():
    meters = MessageMeters()
    SendMeter(meters, "T").sent_together([b"", b""], [bytes(10), bytes(20)], 430, 2)

    traffic = meters.sends["T", NORMAL]
    assert (traffic.nums, traffic.size, traffic.sizes.buckets[0]) == (2, 430, 2)


def test_one_of_those_that_came_together_may_have_a_sharding_key():
    meters = MessageMeters()
    SendMeter(meters, "T").sent_together([b"", KEY], [bytes(10), bytes(10)], 420, 2)

    assert {key: each.nums for key, each in meters.sends.items()} == {("T", NORMAL): 1, ("T", FIFO): 1}


def test_batches_that_came_together_count_as_requests_and_as_messages():
    meters = MessageMeters()
    SendMeter(meters, "T").sent_together([b"", b"", b""], [bytes(40)] * 3, 3000, 6)

    traffic = meters.sends["T", NORMAL]
    assert (traffic.nums, traffic.sizes.count, traffic.sizes.sum) == (6, 3, 1500)


def test_a_transaction_is_open_until_its_end():
    meters = MessageMeters()
    meter = SendMeter(meters, "T")
    for _ in range(3):
        meter.sent("RMQ_SYS_TRANS_HALF_TOPIC", b"", 100)
    meters.ended("T", 4.0, committed=True)
    meters.ended("T", 7.0, committed=False)

    assert (meters.half_messages["T"], meters.committed["T"], meters.rolled_back["T"]) == (1, 1, 1)
    assert meters.finish_latency["T"].buckets[:2] == [1, 1]


def test_half_messages_of_an_earlier_process_do_not_make_the_number_negative():
    meters = MessageMeters()
    meters.closed("T")

    assert meters.half_messages["T"] == 0


def test_a_deleted_topic_is_forgotten():
    meters = MessageMeters()
    SendMeter(meters, "T").sent("T", b"", 100)
    meters.ended("T", 4.0, committed=True)
    meters.timer_enqueued["T"] += 1
    meters.timer_delivered("T", 1.0)
    meters.revived["G", "T", "PUT_OK"] += 1
    meters.revived["G", "U", "PUT_OK"] += 1
    meters.forget("T")

    left = [meters.sends, meters.committed, meters.timer_enqueued, meters.timer_dequeued, meters.delay_latency]
    assert not any(left)
    assert list(meters.revived) == [("G", "U", "PUT_OK")]
