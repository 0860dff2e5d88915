"""Groups that have not consumed messages about to be removed, for the log."""

from collections.abc import Sequence

from rocketbroker.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, OffsetTable
from rocketbroker.broker.topic.system_topics import TIMER_TOPIC
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.store.clean.clean_commit_log_service import QueueRange


def unconsumed_messages(
    ranges: Sequence[QueueRange], offsets: OffsetTable, delay_offsets: dict[int, int], timer_pending: int | None = None
) -> list[str]:
    """Return one text for each group and queue with unconsumed messages in a range, and for each delay level.

    Args:
        ranges: the messages to be removed.
        offsets: ``topic@group`` -> queue id -> committed offset. A group that committed in other queues of the topic
            alone has consumed nothing of this one. One without commits in the topic is not known.
        delay_offsets: delay level -> offset of the next message to deliver.
        timer_pending: offset in the timer's queue of the oldest pending message, ``None`` without one.
    """
    by_topic: dict[str, list[QueueRange]] = {}
    for each in ranges:
        by_topic.setdefault(each.topic, []).append(each)
    losses = []
    for level_queue in by_topic.pop(RMQ_SYS_SCHEDULE_TOPIC, ()):
        level = level_queue.queue_id + 1
        if (left := _left(level_queue, delay_offsets.get(level, 0))) is not None:
            losses.append(f"delay level {level} loses undelivered messages: offsets {left}")
    losses += [
        f"the timer loses undelivered messages: some of the offsets {left}"
        for each in by_topic.pop(TIMER_TOPIC, ())
        if timer_pending is not None and (left := _left(each, timer_pending)) is not None
    ]
    for key, queues in offsets.items():
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        losses += [
            f"group {group} loses messages of topic {topic}, queue {each.queue_id}: offsets {left}"
            for each in by_topic.get(topic, ())
            if (left := _left(each, queues.get(each.queue_id, 0))) is not None
        ]
    return losses


def _left(messages: QueueRange, consumed_to: int) -> str | None:
    first = max(messages.first, consumed_to)
    return f"{first} to {messages.end - 1}" if first < messages.end else None
