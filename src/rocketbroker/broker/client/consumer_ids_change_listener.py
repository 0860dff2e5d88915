"""Notifications of changed consumer groups (o.a.r.broker.client.DefaultConsumerIdsChangeListener).

Each change concerns all clients of the group: a group of n clients that leave one by one would take n * n
notifications. So changes that come close together are coalesced, and the pause between notifications grows with the
group.
"""

import asyncio

from rocketbroker.broker.client.broker2client import notify_consumer_ids_changed
from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.lifecycle import TaskOwner

# A notification takes about 15 µs of the loop, so that no group takes more than 2 % of it.
PAUSE_PER_CLIENT_S = 0.001
# Seconds between checks of clients that are behind.
BEHIND_PERIOD_S = 1.0
RETRY_S = 1.0
# Notifications before the loop serves others.
_AT_A_TIME = 200


class ConsumerIdsChangeListener:
    """Notifies the clients of changed groups soon, and clients that are behind once they have caught up.

    For a client that is behind, the groups to notify are kept, not the bytes to send.
    """

    def __init__(self) -> None:
        self._changed: dict[str, ConsumerGroupInfo] = {}
        self._behind: dict[Connection, dict[str, ConsumerGroupInfo]] = {}
        self._wake = asyncio.Event()
        self._tasks = TaskOwner("ConsumerIdsChangeListener")

    async def start(self) -> None:
        """Start notifying."""
        self._tasks.whenever(self._notify_next, RETRY_S, "notify")

    async def stop(self) -> None:
        """Stop notifying."""
        await self._tasks.stop()

    def group_changed(self, info: ConsumerGroupInfo) -> None:
        """Schedule notifications of the clients that the group has by then."""
        self._changed[info.group_name] = info
        self._wake.set()

    async def _notify_next(self) -> float:
        await self._wait()
        self._wake.clear()
        await self._notify_due()
        return 0.0

    async def _wait(self) -> None:
        """Wait for the next change, or until a group or client is due."""
        now = asyncio.get_running_loop().time()
        pauses = [info.notify_again_at - now for info in self._changed.values()]
        if self._behind:
            pauses.append(BEHIND_PERIOD_S)
        try:
            async with asyncio.timeout(min(pauses, default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _notify_due(self) -> None:
        self._notify_caught_up()
        loop = asyncio.get_running_loop()
        sent = 0
        for group, info in list(self._changed.items()):
            if info.notify_again_at > loop.time():
                continue
            del self._changed[group]
            info.notify_again_at = loop.time() + len(info.channels) * PAUSE_PER_CLIENT_S
            for connection in list(info.channels):
                self._notify(info, connection)
                sent += 1
                if sent % _AT_A_TIME == 0:
                    await asyncio.sleep(0)

    def _notify(self, info: ConsumerGroupInfo, connection: Connection) -> None:
        if connection.is_behind:
            self._behind.setdefault(connection, {})[info.group_name] = info
        else:
            notify_consumer_ids_changed(info.group_name, connection)

    def _notify_caught_up(self) -> None:
        for connection in [each for each in self._behind if not (each.is_open and each.is_behind)]:
            for group, info in self._behind.pop(connection).items():
                if connection in info.channels:
                    notify_consumer_ids_changed(group, connection)
