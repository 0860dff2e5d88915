"""Offset resets that running consumers cannot undo (AdminBrokerProcessor.resetOffsetInner)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from pathlib import Path

from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import StoreError

log = logging.getLogger(__name__)

# Number of offsets in a log line.
_SHOWN = 8


class OffsetReset:
    """Resets offsets in the broker, for groups with and without consumers.

    Args:
        config: ``useServerSideResetOffset``.
        offsets: the offsets.
        hold_service: holds pulls, which a reset answers at once.
        drain: waits until submitted tables are on disk; returns the paths of those that could not be written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        hold_service: PullRequestHoldService,
        drain: Callable[[], Awaitable[Collection[Path]]],
    ) -> None:
        self._config = config
        self._offsets = offsets
        self._hold_service = hold_service
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
            StoreError: The table could not be written; the assigned offsets are valid until the process stops.
        """
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"the offsets are valid until this process stops, but {path} cannot be written; free space on its "
                "disk, or make it writable again"
            )
