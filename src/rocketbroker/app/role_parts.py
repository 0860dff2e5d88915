"""Parts of a broker by the roles that run them (BrokerController.changeSpecialServiceStatus)."""

import logging
from collections.abc import Collection
from enum import Enum
from functools import partial
from typing import Final

from rocketbroker.common.lifecycle import Part, stop_all

log = logging.getLogger(__name__)


class BrokerRole(Enum):
    """Roles in replication (org.apache.rocketmq.store.config.BrokerRole)."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


MASTER: Final = frozenset({BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER})
SYNC_MASTER: Final = frozenset({BrokerRole.SYNC_MASTER})
SLAVE: Final = frozenset({BrokerRole.SLAVE})
ANY_ROLE: Final = frozenset(BrokerRole)


class RoleParts:
    """Starts parts in order and stops them in reverse order, each while the broker has one of its roles.

    Args:
        parts: pairs of roles and the part that runs in them.

    Attributes:
        role: the current role, ``None`` before the start and after the stop.
    """

    def __init__(self, *parts: tuple[Collection[BrokerRole], Part]) -> None:
        self._parts = parts
        self._running: list[Part] = []
        self.role: BrokerRole | None = None

    async def take_role(self, role: BrokerRole) -> None:
        """Stop the parts that the role does not run, then start those that it needs; an error skips the rest."""
        await self._stop([part for roles, part in self._parts if role not in roles])
        for roles, part in self._parts:
            if role in roles and part not in self._running:
                await part.start()
                self._running.append(part)
        self.role = role

    async def stop(self) -> None:
        """Stop all parts."""
        self.role = None
        await self._stop([part for _, part in self._parts])

    async def _stop(self, parts: Collection[Part]) -> None:
        """Stop parts in reverse order, also if the caller is cancelled; log an error and stop the others."""
        await stop_all(*(partial(self._stop_part, part) for part in reversed(list(parts))))

    async def _stop_part(self, part: Part) -> None:
        if part in self._running:
            self._running.remove(part)
            try:
                await part.stop()
            except Exception:
                log.exception("%s did not stop cleanly", type(part).__name__)
