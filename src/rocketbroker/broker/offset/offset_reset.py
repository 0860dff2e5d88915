"""Resets of offsets by administrators, and the report of groups that lose messages to retention."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path

from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager, OffsetTable
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.clean.clean_files_service import QueueRange

log = logging.getLogger(__name__)


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


# Number of offsets in a log line.
_SHOWN = 8


class OffsetReset:
    """Resets offsets in the broker, for groups with and without consumers.

    Args:
        config: ``useServerSideResetOffset``.
        hold_service: holds pulls, which a reset wakes.
        polling: holds pops, which a reset wakes.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        hold_service: PullRequestHoldService,
        polling: PopLongPollingService,
        drain: Callable[[], Awaitable[Collection[Path]]],
    ) -> None:
        self._config = config
        self._offsets = offsets
        self._hold_service = hold_service
        self._polling = polling
        self._drain = drain

    def reaches(self, info: ConsumerGroupInfo | None) -> bool:
        """Return true if the broker resets a group; ``None`` stands for one without clients.

        False for a group whose clients keep their offsets themselves (broadcasting), and with
        ``useServerSideResetOffset=false``.
        """
        return self._config.use_server_side_reset_offset and not (info is not None and info.is_broadcasting)

    def assign(self, group: str, topic: str, targets: Mapping[int, int]) -> None:
        """Reset a group to these offsets, by queue number."""
        for queue_id, offset in targets.items():
            before = self._offsets.query(group, topic, queue_id)
            log.debug(
                "consumer group %s: topic %s queue %d is reset from %d to %d", group, topic, queue_id, before, offset
            )
            self._offsets.assign_reset(group, topic, queue_id, offset)
            self._hold_service.wake_group(group, topic, queue_id)
            self._polling.wake(topic, group, queue_id)
        some = dict(islice(targets.items(), _SHOWN))
        log.info(
            "consumer group %s: topic %s is reset in %d queues, among them (queue: offset) %s",
            group,
            topic,
            len(targets),
            some,
        )

    def keep(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set these offsets, by queue number, for consumers that start later; commits of running ones replace them."""
        for queue_id, offset in offsets.items():
            self._offsets.replace(group, topic, queue_id, offset)

    async def store(self) -> None:
        """Wait until assigned offsets are on disk.

        Raises:
            StoreError: The log could not be synced or the table not be written; the assigned offsets are valid until
                the process stops.
        """
        # Else a power loss could leave the table alone, and records of pops would move the offsets on again.
        await self._offsets.sync_sets()
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"the offsets are valid until this process stops, but {path} cannot be written; free space on its "
                "disk, or make it writable again"
            )
