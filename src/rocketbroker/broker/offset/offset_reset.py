"""Moves consumer groups to other offsets so that it takes effect (AdminBrokerProcessor.resetOffsetInner)."""

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

# Offsets that a log line names.
_SHOWN = 8


class OffsetReset:
    """Resets offsets in the broker, for groups with and without consumers.

    Args:
        config: ``useServerSideResetOffset``.
        offsets: the offsets.
        hold_service: has held pulls, whose consumers are told at once.
        drain: waits until tables that were submitted are on disk; gives the paths of those that could not be written.
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
        """Return whether the broker resets a group; ``None`` stands for one without clients.

        Not one whose clients keep their offsets themselves (broadcasting), and none with
        ``useServerSideResetOffset=false``.
        """
        return self._config.use_server_side_reset_offset and not (info is not None and info.is_broadcasting)

    def assign(self, group: str, topic: str, targets: Mapping[int, int]) -> None:
        """Move a group to these offsets, by queue number."""
        for queue_id, offset in targets.items():
            before = self._offsets.query(group, topic, queue_id)
            log.debug("group %s in topic %s, queue %d, is reset from %d to %d", group, topic, queue_id, before, offset)
            self._offsets.assign_reset(group, topic, queue_id, offset)
            self._hold_service.wake_group(group, topic, queue_id)
        some = dict(islice(targets.items(), _SHOWN))
        log.info(
            "group %s in topic %s is reset in %d queues, among them (queue: offset) %s",
            group,
            topic,
            len(targets),
            some,
        )

    def keep(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Keep these offsets, by queue number, for consumers that start later; what one that runs commits counts."""
        for queue_id, offset in offsets.items():
            self._offsets.replace(group, topic, queue_id, offset)

    async def store(self) -> None:
        """Wait until what was assigned is on disk.

        Raises:
            StoreError: the disk refused; what was assigned holds until the process stops.
        """
        self._offsets.flush()
        if (path := self._offsets.path) in await self._drain():
            raise StoreError(
                f"the offsets hold until this process stops, but {path} cannot be written; make room on its disk, or "
                "have it written to again"
            )
