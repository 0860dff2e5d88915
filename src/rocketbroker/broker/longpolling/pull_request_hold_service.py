"""Holding of pulls until messages arrive (org.apache.rocketmq.broker.longpolling.PullRequestHoldService).

A held pull ends when a message that it wants arrives, when its time is over, or when its connection closes. It is
answered by running it again, and never held twice.
"""

import asyncio

from rocketbroker.broker.longpolling.held_requests import HeldRequests
from rocketbroker.broker.longpolling.pull_request import ManyPullRequest, PullRequest
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TaskOwner, until_tick

_CHECK_S = 5.0
# Queues and pulls checked in one turn of the loop.
_MOST_CHECKED = 4096


class PullRequestHoldService:
    """Holds pulls and has them run again; implements ``store.dispatch.commit_log_dispatcher.MessageArrivingListener``.

    Args:
        config: ``maxHeldPulls``, ``maxHeldPullsPerConnection`` and ``maxSuspendTimeoutMillis``. ``longPollingEnable``
            sets how often to check pulls whose queue has grown by messages that they do not want.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._held: dict[tuple[str, int], ManyPullRequest] = {}
        self._requests: HeldRequests[PullRequest] = HeldRequests(self._remove)
        self._tasks = TaskOwner("PullRequestHoldService")
        self.waiting = False

    async def start(self) -> None:
        self._tasks.forever(self._check, "check")

    async def stop(self) -> None:
        """Stop the check and forget the held pulls."""
        await self._tasks.stop()
        self._requests.stop()

    @property
    def held(self) -> int:
        """Number of pulls that wait."""
        return sum(queue.count for queue in self._held.values())

    def suspend(self, request: PullRequest, max_offset: int, timeout_ms: int) -> None:
        """Hold a pull of a queue that ends at ``max_offset``, for ``timeout_ms`` at most.

        Raises:
            BrokerResponseError: SYSTEM_BUSY if too many pulls are held, of its connection or in total. Clients pull
                again after some seconds; after PULL_NOT_FOUND they would do so at once, and over and over.
        """
        config, requests, connection = self._config, self._requests, request.connection
        if (taken := requests.weight_of(connection)) + request.weight > config.max_held_pulls_per_connection:
            raise _too_many("maxHeldPullsPerConnection", taken, config.max_held_pulls_per_connection)
        if not requests.has_room(request, config.max_held_pulls):
            share = requests.weight_of_address(connection)
            text = "" if share is None else f", {share:,} of them from this address"
            raise _too_many("maxHeldPulls", requests.weight, config.max_held_pulls, text)
        key = request.topic, request.queue_id
        queue = self._held.get(key)
        if queue is None:
            queue = self._held[key] = ManyPullRequest(*key)
        queue.add(request)
        queue.max_offset = max_offset
        timeout_ms = min(max(timeout_ms, 0), config.max_suspend_timeout_millis)
        requests.hold(request, timeout_ms / 1000)
        self.waiting = True

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake the pulls that want a message."""
        queue = self._held.get((topic, queue_id))
        if queue is None:
            return
        woken = queue.take(tags_code, max_offset)
        if woken:
            self._requests.wake(woken)
        if queue.filtered:
            self._requests.ask(queue)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """Run the pulls of a group again, because its offset was reset."""
        queue = self._held.get((topic, queue_id))
        if queue is not None:
            self._requests.wake(each for each in queue if each.command.header.consumer_group == group)

    def master_online(self) -> None:
        """Run all pulls of a slave again, so that their consumers go to the master (notifyMasterOnline)."""
        self._requests.wake(each for queue in self._held.values() for each in queue)

    def check_grants(self) -> None:
        """Answer the pulls of users who have lost the right to them, since policies have changed."""
        self._requests.check_grants()

    def on_close(self, connection: Connection) -> None:
        """Forget the pulls of a closed connection."""
        self._requests.on_close(connection)

    def _remove(self, request: PullRequest) -> None:
        # The queue stays for the next pull: the check drops empty queues.
        self._held[request.topic, request.queue_id].remove(request)
        self.waiting = self._requests.weight > 0

    async def _check(self) -> None:
        while True:
            config = self._config
            pause_s = _CHECK_S if config.long_polling_enable else config.short_polling_time_mills / 1000
            await asyncio.sleep(until_tick(pause_s))
            await self._check_held()

    async def _check_held(self) -> None:
        """Wake the pulls whose queue has grown, whatever their tags, so that their consumers advance."""
        checked = 0
        for queue in list(self._held.values()):
            if queue.count:
                self._requests.wake([each for each in queue if each.offset < queue.max_offset])
            else:
                self._held.pop((queue.topic, queue.queue_id), None)
            checked += 1 + queue.count
            if checked >= _MOST_CHECKED:
                checked = 0
                await asyncio.sleep(0)


def _too_many(name: str, held: int, limit: int, share: str = "") -> BrokerResponseError:
    remark = (
        f"{name}: {held:,} pulls are held{share} and the limit is {limit:,}, tags and filters counted; pull again "
        f"later, use fewer queues, groups or tags, or raise {name}"
    )
    return BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
