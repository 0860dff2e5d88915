"""Pulls that wait for messages (org.apache.rocketmq.broker.longpolling.PullRequestHoldService).

A held pull ends in one of three ways: a message that it wants arrives, its time is over, or its connection closes. It
is answered by running it once more; a pull that was woken is never held again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

_CHECK_S = 5.0
# A client has one pull under way for each queue of each of its groups; who sends more than this is not heard.
MAX_HELD_BY_CONNECTION = 16_384


class PullRequest:
    """A pull that is held: from where it wants messages, and which tags codes (``None`` for all).

    ``has_match`` is there when it filters by properties, and says whether one that it wants has come since it was asked
    last; ``None`` when it has to be asked again for that, others having their turn before.
    """

    __slots__ = ("command", "connection", "has_match", "offset", "queue_id", "tag_codes", "timer", "topic")

    def __init__(
        self,
        connection: Connection,
        command: Any,
        topic: str,
        queue_id: int,
        offset: int,
        tag_codes: frozenset[int] | None,
        has_match: Callable[[], bool | None] | None = None,
    ) -> None:
        self.connection = connection
        self.command = command
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.tag_codes = tag_codes
        self.has_match = has_match
        self.timer: asyncio.TimerHandle | None = None


class PullRequestHoldService:
    """Holds pulls and has them run again; implements ``store.message_arriving_listener.MessageArrivingListener``.

    Args:
        config: ``longPollingEnable`` says how often the pulls are looked through whose queue has grown by messages that
            they do not want.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._resume: Callable[[PullRequest], None] | None = None
        self._max_offset_in_queue: Callable[[str, int], int] | None = None
        self._held: dict[tuple[str, int], set[PullRequest]] = {}
        self._by_connection: dict[Connection, set[PullRequest]] = {}
        self._ready: list[PullRequest] = []
        self._to_ask: set[PullRequest] = set()
        self._tasks = TaskOwner("PullRequestHoldService")
        self.waiting = False

    def bind(self, resume: Callable[[PullRequest], None], max_offset_in_queue: Callable[[str, int], int]) -> None:
        """Say who runs a held pull once more, and who knows where a queue ends; before ``start``.

        They come later than the constructor's arguments, since the store tells this service of messages and the pulls
        read the store.
        """
        self._resume = resume
        self._max_offset_in_queue = max_offset_in_queue

    async def start(self) -> None:
        """Start the check."""
        self._tasks.forever(self._check, "check")

    async def stop(self) -> None:
        """Stop the check and forget the held pulls."""
        await self._tasks.stop()
        for requests in list(self._held.values()):
            for request in list(requests):
                self._forget(request)

    def suspend(self, request: PullRequest, timeout_ms: int) -> None:
        """Hold a pull for so many milliseconds at the most.

        Raises:
            BrokerResponseError: SYSTEM_BUSY, too many pulls of its connection are held already.
        """
        of_connection = self._by_connection.setdefault(request.connection, set())
        if len(of_connection) >= MAX_HELD_BY_CONNECTION:
            remark = (
                f"{len(of_connection)} pulls of this connection are held, which is the limit; wait for their answers"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        of_connection.add(request)
        self._held.setdefault((request.topic, request.queue_id), set()).add(request)
        self.waiting = True
        loop = asyncio.get_running_loop()
        request.timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire, request)

    def arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """A message arrived: wake the pulls that want it."""
        requests = self._held.get((topic, queue_id))
        if requests is None:
            return
        for request in list(requests):
            wanted = request.tag_codes is None or tags_code in request.tag_codes
            if wanted and max_offset > request.offset:
                if request.has_match is None:
                    self._wake(request)
                else:
                    self._ask(request)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """Have the pulls of a group run again whatever there is: its offset was reset."""
        for request in list(self._held.get((topic, queue_id), ())):
            if request.command.header.consumer_group == group:
                self._wake(request)

    def _wake(self, request: PullRequest) -> None:
        """Run a pull again after the batch of messages that is being dispatched, which it then gets whole."""
        self._forget(request)
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._resume_ready)
        self._ready.append(request)

    def _ask(self, request: PullRequest) -> None:
        """Look at the properties of a batch of messages once all of it is dispatched."""
        if not self._to_ask:
            asyncio.get_running_loop().call_soon(self._ask_all)
        self._to_ask.add(request)

    def _ask_all(self) -> None:
        asked, self._to_ask = self._to_ask, set()
        for request in asked:
            # Its time may be over, or its connection closed, by now.
            if request in self._held.get((request.topic, request.queue_id), ()) and request.has_match is not None:
                try:
                    matched = request.has_match()
                except Exception:
                    log.exception("a held pull of %s, queue %d, cannot be filtered", request.topic, request.queue_id)
                    matched = True  # the pull itself answers what is wrong
                if matched is None:
                    self._ask(request)
                elif matched:
                    self._forget(request)
                    self._run_again(request)

    def _resume_ready(self) -> None:
        ready, self._ready = self._ready, []
        for request in ready:
            self._run_again(request)

    def _expire(self, request: PullRequest) -> None:
        self._forget(request)
        self._run_again(request)

    def _run_again(self, request: PullRequest) -> None:
        if request.connection.is_open and self._resume is not None:
            try:
                self._resume(request)
            except Exception:
                # The others that were woken with it must still be answered.
                log.exception("a held pull of %s, queue %d, could not be answered", request.topic, request.queue_id)

    def _forget(self, request: PullRequest) -> None:
        if request.timer is not None:
            request.timer.cancel()
        _discard(self._held, (request.topic, request.queue_id), request)
        _discard(self._by_connection, request.connection, request)
        self.waiting = bool(self._held)

    def on_close(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is closed."""
        for request in list(self._by_connection.get(connection, ())):
            self._forget(request)

    async def _check(self) -> None:
        assert self._max_offset_in_queue is not None
        while True:
            config = self._config
            await asyncio.sleep(_CHECK_S if config.long_polling_enable else config.short_polling_time_mills / 1000)
            for (topic, queue_id), requests in list(self._held.items()):
                max_offset = self._max_offset_in_queue(topic, queue_id)
                for request in list(requests):
                    # Whatever their tags: its consumer is to learn that there is nothing for it up to here.
                    if max_offset > request.offset:
                        self._wake(request)


def _discard(table: dict[Any, set[PullRequest]], key: object, request: PullRequest) -> None:
    requests = table.get(key)
    if requests is not None:
        requests.discard(request)
        if not requests:
            del table[key]
