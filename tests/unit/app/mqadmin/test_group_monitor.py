"""Reports of the monitor: what a group has not consumed, and queues that stand still."""

from rocketbroker.app.mqadmin.group_monitor import UndoneMessages, stuck_queues, undone_messages
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo, ProcessQueueInfo
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper

NOW = 1_000_000


def test_lag_and_delay_are_counted_by_topic():
    table = {
        MessageQueue("T", "a", 0): OffsetWrapper(broker_offset=10, consumer_offset=4, last_timestamp=NOW - 5000),
        MessageQueue("T", "a", 1): OffsetWrapper(broker_offset=3, consumer_offset=3, last_timestamp=1),
        MessageQueue("T", "a", 2): OffsetWrapper(broker_offset=3, consumer_offset=5, last_timestamp=1),
        MessageQueue("U", "a", 0): OffsetWrapper(broker_offset=1, consumer_offset=0, last_timestamp=0),
    }
    assert undone_messages("CG", ConsumeStats(table), NOW) == [
        UndoneMessages("CG", "T", 6, 6, 5000),
        UndoneMessages("CG", "U", 1, 1, 0),
    ]


def info(consume_type: str, orderly: str, **fields: int | bool) -> ConsumerRunningInfo:
    properties = {"PROP_CONSUME_TYPE": consume_type, "PROP_CONSUMEORDERLY": orderly}
    return ConsumerRunningInfo(properties, mq_table={MessageQueue("T", "a", 0): ProcessQueueInfo(**fields)})  # type: ignore[arg-type]


def test_queues_that_stand_still_are_named():
    push = "CONSUME_PASSIVELY"
    old = NOW - 61_000
    stuck = info(push, "false", cached_msg_count=1, last_consume_timestamp=old)
    assert stuck_queues(stuck, NOW) == ["T a 0 can't consume for a while, maybe blocked, 61000ms"]
    assert stuck_queues(info(push, "false", cached_msg_count=0, last_consume_timestamp=old), NOW) == []
    assert stuck_queues(info(push, "false", cached_msg_count=1, last_consume_timestamp=NOW), NOW) == []
    unlocked = info(push, "true", locked=False, last_lock_timestamp=NOW - 7)
    assert stuck_queues(unlocked, NOW) == ["T a 0 can't lock for a while, 7ms"]
    dropped = info(push, "true", locked=True, dropped=True, try_unlock_times=2)
    assert stuck_queues(dropped, NOW) == ["T a 0 unlock 2 times, still failed"]
    assert stuck_queues(info("CONSUME_ACTIVELY", "false", cached_msg_count=1, last_consume_timestamp=old), NOW) == []
