"""Holding of pulls until messages arrive (org.apache.rocketmq.broker.longpolling.PullRequestHoldService).

A held pull ends when a message that it wants arrives, when its time is over, or when its connection closes. It is
answered by running it again, and never held twice. The event loop runs only a few woken pulls in a turn, and does other
work in between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial

from rocketbroker.broker.longpolling.pull_request import Deadlines, ManyPullRequest, PullRequest
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import AddressShares, address_key, is_loopback
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TaskOwner, until_tick

log = logging.getLogger(__name__)

_CHECK_S = 5.0
# Limits for one turn of the loop: pulls run again, filters applied, and queues and pulls checked.
_MOST_RUN = 64
_MOST_ASKED = 16
_MOST_CHECKED = 4096


class _OfConnection:
    """The held pulls of a connection, their weight, and its address."""

    __slots__ = ("address", "is_local", "requests", "weight")

    def __init__(self, connection: Connection) -> None:
        self.address = address_key(connection.remote_host)
        self.is_local = is_loopback(self.address)
        self.requests: set[PullRequest] = set()
        self.weight = 0


class PullRequestHoldService:
    """Holds pulls and has them run again; implements ``store.dispatch.commit_log_dispatcher.MessageArrivingListener``.

    Args:
        config: ``maxHeldPulls``, ``maxHeldPullsPerConnection`` and ``maxSuspendTimeoutMillis``. ``longPollingEnable``
            sets how often to check pulls whose queue has grown by messages that they do not want.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._held: dict[tuple[str, int], ManyPullRequest] = {}
        self._weight = 0
        self._shares = AddressShares()
        self._by_connection: dict[Connection, _OfConnection] = {}
        self._deadlines: Deadlines[PullRequest] = Deadlines(self._wake)
        self._ready: deque[PullRequest] = deque()
        # Connections of pulls that were answered in this turn of the loop.
        self._answered: set[Connection] = set()
        # Queues with new messages for filters to look at, and pulls whose filters are still looking.
        self._grown: dict[ManyPullRequest, None] = {}
        self._to_ask: deque[PullRequest] = deque()
        self._tasks = TaskOwner("PullRequestHoldService")
        self.waiting = False

    async def start(self) -> None:
        self._tasks.forever(self._check, "check")

    async def stop(self) -> None:
        """Stop the check and forget the held pulls."""
        await self._tasks.stop()
        for connection in list(self._by_connection):
            self.on_close(connection)
        self._deadlines.stop()

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
        of_connection = self._by_connection.get(request.connection)
        if of_connection is None:
            of_connection = self._by_connection[request.connection] = _OfConnection(request.connection)
        config, weight, address = self._config, request.weight, of_connection.address
        if of_connection.weight + weight > config.max_held_pulls_per_connection:
            raise _too_many("maxHeldPullsPerConnection", of_connection.weight, config.max_held_pulls_per_connection)
        free = config.max_held_pulls - self._weight
        if weight > free or not (of_connection.is_local or self._shares.allows(address, free, weight)):
            taken = self._shares.taken(address)
            share = "" if of_connection.is_local else f", {taken:,} of them from this address"
            raise _too_many("maxHeldPulls", self._weight, config.max_held_pulls, share)
        key = request.topic, request.queue_id
        queue = self._held.get(key)
        if queue is None:
            queue = self._held[key] = ManyPullRequest(*key)
        queue.add(request)
        queue.max_offset = max_offset
        of_connection.requests.add(request)
        of_connection.weight += weight
        self._weight += weight
        self._shares.add(address, weight)
        request.held = True
        timeout_ms = min(max(timeout_ms, 0), config.max_suspend_timeout_millis)
        request.deadline = self._deadlines.add(request, timeout_ms / 1000)
        self.waiting = True

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake the pulls that want a message."""
        queue = self._held.get((topic, queue_id))
        if queue is None:
            return
        woken = queue.take(tags_code, max_offset)
        if woken:
            self._wake(woken)
        if queue.filtered:
            self._ask(queue)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """Run the pulls of a group again, because its offset was reset."""
        queue = self._held.get((topic, queue_id))
        if queue is not None:
            self._wake(each for each in queue if each.command.header.consumer_group == group)

    def master_online(self) -> None:
        """Run all pulls of a slave again, so that their consumers go to the master (notifyMasterOnline)."""
        self._wake(each for queue in self._held.values() for each in queue)

    def _wake(self, requests: Iterable[PullRequest]) -> None:
        """Schedule pulls to run again after the current batch is dispatched, so that they get all of it."""
        ready = self._ready
        is_running = bool(ready)
        for request in requests:
            if not request.woken:
                request.woken = True
                ready.append(request)
        if ready and not is_running:
            asyncio.get_running_loop().call_soon(self._resume_ready)

    def _resume_ready(self) -> None:
        for _ in range(min(len(self._ready), _MOST_RUN)):
            self._run_again(self._ready.popleft())
        self._flush_answered()
        if self._ready:
            asyncio.get_running_loop().call_soon(self._resume_ready)

    def _ask(self, queue: ManyPullRequest) -> None:
        """Schedule the filters of a queue to look at a batch of messages once all of it is dispatched."""
        if not self._grown and not self._to_ask:
            asyncio.get_running_loop().call_soon(self._ask_some)
        self._grown[queue] = None

    def _ask_some(self) -> None:
        if not self._to_ask:
            for queue in self._grown:
                self._to_ask.extend(queue.filtered)
            self._grown.clear()
        for _ in range(min(len(self._to_ask), _MOST_ASKED)):
            self._ask_one(self._to_ask.popleft())
        self._flush_answered()
        if self._to_ask or self._grown:
            asyncio.get_running_loop().call_soon(self._ask_some)

    def _ask_one(self, request: PullRequest) -> None:
        # Its time may be over by now, or its connection closed.
        if not request.held or request.woken or request.has_match is None:
            return
        try:
            matched = request.has_match()
        except Exception:
            log.exception("held pull of topic %s, queue %d, cannot be filtered", request.topic, request.queue_id)
            matched = True  # the pull itself answers the error
        if matched is None:
            self._to_ask.append(request)
        elif matched:
            self._run_again(request)

    def _run_again(self, request: PullRequest) -> None:
        if not request.held:
            return
        self._forget(request)
        if request.connection.is_open:
            self._answered.add(request.connection)
            try:
                request.connection.answer(
                    request.command, partial(request.run, request.connection, request.command, request)
                )
            except Exception:
                # The answers of others must be written, and their pulls run.
                log.exception("held pull of topic %s, queue %d, cannot be answered", request.topic, request.queue_id)

    def _flush_answered(self) -> None:
        """Write the answers of this turn, those of one connection together."""
        answered, self._answered = self._answered, set()
        for connection in answered:
            try:
                connection.flush()
            except Exception:
                log.exception("answers of held pulls cannot be written to %s", connection.remote_address)

    def _forget(self, request: PullRequest) -> None:
        request.held = False
        self._deadlines.discard(request, request.deadline)
        # Queues and connections stay for the next pull: the check drops empty queues, on_close drops connections.
        self._held[request.topic, request.queue_id].remove(request)
        of_connection = self._by_connection[request.connection]
        of_connection.requests.discard(request)
        of_connection.weight -= request.weight
        self._weight -= request.weight
        self._shares.remove(of_connection.address, request.weight)
        self.waiting = self._weight > 0

    def on_close(self, connection: Connection) -> None:
        """Forget the pulls of a closed connection."""
        of_connection = self._by_connection.get(connection)
        if of_connection is not None:
            for request in list(of_connection.requests):
                self._forget(request)
            del self._by_connection[connection]

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
                self._wake([each for each in queue if each.offset < queue.max_offset])
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
