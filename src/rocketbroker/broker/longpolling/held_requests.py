"""Requests that wait for messages: their deadlines, their limits, and their second run.

A held request is answered by running it again: when its service wakes it, or its time is over. The event loop runs
only a few woken requests in a turn, and does other work in between.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.common.address_shares import AddressShares, address_key, is_loopback
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_S = 0.05
# Empty ticks are dropped once they outnumber the others by this.
_MOST_STALE = 1_024


class Deadlines(Generic[T]):
    """Items grouped by the 50 ms tick at which they are due.

    Items due at once cost one call; a timer for each would block the event loop until all had been called.

    Args:
        due: called with the items that are due, which are then forgotten.
    """

    def __init__(self, due: Callable[[Iterable[T]], None]) -> None:
        self._due = due
        self._items: dict[int, set[T]] = {}
        # A heap; ticks without items are skipped.
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def add(self, item: T, seconds: float) -> int:
        """Schedule an item and return its key for ``discard``."""
        tick = int((asyncio.get_running_loop().time() + seconds) / _TICK_S) + 1
        items = self._items.get(tick)
        if items is None:
            items = self._items[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        items.add(item)
        return tick

    def discard(self, item: T, tick: int) -> None:
        """Forget an item."""
        items = self._items.get(tick)
        if items is None:
            return
        items.discard(item)
        if not items:
            del self._items[tick]
            if len(self._ticks) > 2 * len(self._items) + _MOST_STALE:
                self._ticks = list(self._items)
                heapq.heapify(self._ticks)

    def stop(self) -> None:
        """Forget all items."""
        self._items.clear()
        self._ticks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._timer = asyncio.get_running_loop().call_at(self._ticks[0] * _TICK_S, self._run)

    def _run(self) -> None:
        now = int(asyncio.get_running_loop().time() / _TICK_S)
        while self._ticks and self._ticks[0] <= now:
            items = self._items.pop(heapq.heappop(self._ticks), None)
            if items:
                self._due(items)
        self._set_timer()


# Memory of a held request in units of a plain one: tags per unit, units of its own filter, which caches results, and
# queues per unit to which it applies the filter.
_TAGS_A_UNIT = 4
_FILTER_UNITS = 32
_QUEUES_A_UNIT = 4


class HeldRequest:
    """A request that waits for messages.

    Args:
        filtered_queues: number of queues to which ``has_match`` applies a filter of the request's own.

    Attributes:
        run: function that runs the request again and returns its answer.
        tag_codes: tags codes wanted, ``None`` for all.
        has_match: set if the request filters by properties. Returns true if a wanted message has arrived since the
            last call, ``None`` if it must be called again after other work.
        deadline: key in ``Deadlines``.
        held: true while the request waits.
        weight: memory in units of a plain request.
        woken: true once the request is scheduled to run again.
    """

    __slots__ = (
        "command",
        "connection",
        "deadline",
        "has_match",
        "held",
        "queue_id",
        "run",
        "tag_codes",
        "topic",
        "weight",
        "woken",
    )

    def __init__(  # noqa: PLR0913 - a held request has these parts
        self,
        connection: Connection,
        command: Any,
        topic: str,
        queue_id: int,
        tag_codes: frozenset[int] | None,
        has_match: Callable[[], bool | None] | None,
        run: Callable[[Connection, Any, Any], Answer],
        *,
        filtered_queues: int,
    ) -> None:
        self.run = run
        self.connection = connection
        self.command = command
        self.topic = topic
        self.queue_id = queue_id
        self.tag_codes = tag_codes
        self.has_match = has_match
        self.deadline = 0
        self.held = False
        self.woken = False
        tags = 0 if tag_codes is None else len(tag_codes)
        own_filter = has_match is not None and filtered_queues > 0
        filter_units = _FILTER_UNITS + filtered_queues // _QUEUES_A_UNIT if own_filter else 0
        self.weight = 1 + tags // _TAGS_A_UNIT + filter_units


def _refusal_of(request: HeldRequest) -> BrokerResponseError | None:
    """Return why a request may not be answered any more: its user has lost the right since it came."""
    if not callable(request.command.grant):
        return None
    try:
        request.command.grant()
    except BrokerResponseError as refusal:
        return refusal
    return None


def _refuse(refusal: BrokerResponseError) -> Answer:
    raise refusal


R = TypeVar("R", bound=HeldRequest)

# Limits for one turn of the loop: requests run again, filters applied, and grants checked.
_MOST_RUN = 64
_MOST_ASKED = 16
_MOST_CHECKED = 1024


class _OfConnection(Generic[R]):
    """The held requests of a connection, their weight, and its address."""

    __slots__ = ("address", "requests", "weight")

    def __init__(self, connection: Connection) -> None:
        address = address_key(connection.remote_host)
        #: Key of its share; this machine may take all.
        self.address = None if is_loopback(address) else address
        self.requests: set[R] = set()
        self.weight = 0


R_co = TypeVar("R_co", bound=HeldRequest, covariant=True)


class Filtered(Protocol[R_co]):
    """Held requests of a place where messages arrive."""

    @property
    def filtered(self) -> Iterable[R_co]:
        """Requests that filter by properties."""


class HeldRequests(Generic[R]):
    """The held requests of one service.

    Args:
        remove: called when a request is no longer held, to forget it in the service's own tables.
        on_lost: called for a woken request that does not run, because its connection is closed.
    """

    def __init__(self, remove: Callable[[R], None], on_lost: Callable[[R], None] | None = None) -> None:
        self._remove = remove
        self._on_lost = on_lost
        #: Sum of the weights.
        self.weight = 0
        self._shares = AddressShares()
        self._by_connection: dict[Connection, _OfConnection[R]] = {}
        self._deadlines: Deadlines[R] = Deadlines(self.wake)
        self._ready: deque[R] = deque()
        # Connections of requests that were answered in this turn of the loop.
        self._answered: set[Connection] = set()
        # Places with new messages for filters to look at, and requests whose filters are still looking.
        self._grown: dict[Filtered[R], None] = {}
        self._to_ask: deque[R] = deque()
        # Requests that were held when policies changed.
        self._to_check: deque[R] = deque()

    def stop(self) -> None:
        """Forget all requests."""
        for of_connection in self._by_connection.values():
            for request in list(of_connection.requests):
                self._forget(request)
        self._by_connection.clear()
        self._deadlines.stop()

    def weight_of(self, connection: Connection) -> int:
        """Return the weight of a connection's requests."""
        return self._of(connection).weight

    def weight_of_address(self, connection: Connection) -> int | None:
        """Return the weight of the requests of a connection's address; ``None`` for this machine."""
        address = self._of(connection).address
        return None if address is None else self._shares.taken(address)

    def has_room(self, request: R, limit: int) -> bool:
        """Return true if the request can be held; an address gets as many as it leaves to others."""
        return self._shares.allows(self._of(request.connection).address, limit - self.weight, request.weight)

    def hold(self, request: R, seconds: float) -> None:
        """Hold a request, for this time at most."""
        of_connection = self._of(request.connection)
        of_connection.requests.add(request)
        of_connection.weight += request.weight
        self.weight += request.weight
        self._shares.add(of_connection.address, request.weight)
        request.held, request.woken = True, False
        request.deadline = self._deadlines.add(request, seconds)

    def _of(self, connection: Connection) -> _OfConnection[R]:
        of_connection = self._by_connection.get(connection)
        if of_connection is None:
            of_connection = self._by_connection[connection] = _OfConnection(connection)
        return of_connection

    def wake(self, requests: Iterable[R]) -> None:
        """Schedule requests to run again after the current batch is dispatched, so that they get all of it."""
        ready = self._ready
        is_running = bool(ready)
        for request in requests:
            if not request.woken:
                request.woken = True
                ready.append(request)
        if ready and not is_running:
            asyncio.get_running_loop().call_soon(self._resume_ready)

    async def run_ready(self) -> None:
        """Wait until the requests that are scheduled now have run; later ones run after them."""
        for _ in range(len(self._ready) // _MOST_RUN + 1):
            await asyncio.sleep(0)

    def ask(self, place: Filtered[R]) -> None:
        """Schedule the filters of a place to look at a batch of messages once all of it is dispatched."""
        if not self._grown and not self._to_ask:
            asyncio.get_running_loop().call_soon(self._ask_some)
        self._grown[place] = None

    def check_grants(self) -> None:
        """Answer the requests that may wait no longer, since policies have changed; some in each turn of the loop."""
        is_checking = bool(self._to_check)
        self._to_check = deque(each for of in self._by_connection.values() for each in of.requests)
        if self._to_check and not is_checking:
            asyncio.get_running_loop().call_soon(self._check_some)

    def _check_some(self) -> None:
        for _ in range(min(len(self._to_check), _MOST_CHECKED)):
            request = self._to_check.popleft()
            refusal = _refusal_of(request) if request.held else None
            if refusal is not None:
                self._run_again(request, refusal)
        self._flush_answered()
        if self._to_check:
            asyncio.get_running_loop().call_soon(self._check_some)

    def on_close(self, connection: Connection) -> None:
        """Forget the requests of a closed connection."""
        of_connection = self._by_connection.get(connection)
        if of_connection is None:
            return
        requests = list(of_connection.requests)
        for request in requests:
            self._forget(request)
        del self._by_connection[connection]
        # Only now: a lost request must not pass its turn to another one of this connection.
        for request in requests:
            if request.woken:
                self._lose(request)

    def drop(self, connection: Connection, command: Any) -> None:
        """Forget a request that nobody waits for any more, though its connection is open."""
        of_connection = self._by_connection.get(connection)
        requests = () if of_connection is None else of_connection.requests
        for request in [each for each in requests if each.command is command]:
            self._forget(request)
            if request.woken:
                self._lose(request)

    def _resume_ready(self) -> None:
        for _ in range(min(len(self._ready), _MOST_RUN)):
            self._run_again(self._ready.popleft())
        self._flush_answered()
        if self._ready:
            asyncio.get_running_loop().call_soon(self._resume_ready)

    def _ask_some(self) -> None:
        if not self._to_ask:
            for place in self._grown:
                self._to_ask.extend(place.filtered)
            self._grown.clear()
        for _ in range(min(len(self._to_ask), _MOST_ASKED)):
            self._ask_one(self._to_ask.popleft())
        self._flush_answered()
        if self._to_ask or self._grown:
            asyncio.get_running_loop().call_soon(self._ask_some)

    def _ask_one(self, request: R) -> None:
        # Its time may be over by now, or its connection closed.
        if not request.held or request.woken or request.has_match is None:
            return
        try:
            matched = request.has_match()
        except Exception:
            log.exception("held request for topic %s, queue %d, cannot be filtered", request.topic, request.queue_id)
            matched = True  # the request itself answers the error
        if matched is None:
            self._to_ask.append(request)
        elif matched:
            self._run_again(request)

    def _run_again(self, request: R, refusal: BrokerResponseError | None = None) -> None:
        if not request.held:
            return
        self._forget(request)
        connection = request.connection
        if not connection.is_open:
            self._lose(request)
            return
        self._answered.add(connection)
        refusal = refusal or _refusal_of(request)
        if refusal is not None:
            self._lose(request)
        try:
            make = partial(request.run, connection, request.command, request)
            connection.answer(request.command, make if refusal is None else partial(_refuse, refusal))
        except Exception:
            # The answers of others must be written, and their requests run.
            log.exception("held request for topic %s, queue %d, cannot be answered", request.topic, request.queue_id)

    def _flush_answered(self) -> None:
        """Write the answers of this turn, those of one connection together."""
        answered, self._answered = self._answered, set()
        for connection in answered:
            try:
                connection.flush()
            except Exception:
                log.exception("answers of held requests cannot be written to %s", connection.remote_address)

    def _lose(self, request: R) -> None:
        if self._on_lost is not None:
            self._on_lost(request)

    def _forget(self, request: R) -> None:
        request.held = False
        self._deadlines.discard(request, request.deadline)
        # The connection stays for the next request: on_close drops it.
        of_connection = self._by_connection[request.connection]
        of_connection.requests.discard(request)
        of_connection.weight -= request.weight
        self.weight -= request.weight
        self._shares.remove(of_connection.address, request.weight)
        self._remove(request)
