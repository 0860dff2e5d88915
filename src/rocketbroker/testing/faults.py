"""Faults that a test orders: late, lost or wrong answers, and lost connections."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from rocketbroker.codec.remoting.handler import (
    HELD,
    Answer,
    Connection,
    InTurn,
    Route,
    RunAnswers,
    RunAnswersFuture,
    RunHandler,
)
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode

#: Requests that store a message.
SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
#: Requests that read messages.
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_REASON = "a test cut the connection"

Serve = Callable[[Connection, Command], Answer]
Apply = Callable[[Connection, Command, Serve], Answer]


class _Order(msgspec.Struct):
    """A fault for the next requests; ``left`` is None for all until ``clear``."""

    apply: Apply
    to: Collection[int]
    broker: str | None
    left: int | None


class Faults:
    """Faults in the answers of the brokers, from any thread.

    Each order is for some request codes (``SENDS``, ``PULLS`` or any others), and for one broker or all. ``times`` is
    the number of requests; None means all until ``clear``. The first order that fits a request is the one that counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[_Order] = []
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()

    def answer(
        self,
        code: int,
        remark: str = "ordered by a test",
        *,
        times: int | None = 1,
        to: Collection[int] = SENDS,
        broker: str | None = None,
    ) -> None:
        """Answer with a code, such as ``ResponseCode.SYSTEM_BUSY``, and do not handle the request."""

        def apply(_connection: Connection, _command: Command, _serve: Serve) -> Answer:
            return response(code, remark)

        self._add(apply, to, broker, times)

    def delay_answers(
        self, seconds: float, *, times: int | None = 1, to: Collection[int] = SENDS, broker: str | None = None
    ) -> None:
        """Handle the request, and answer that long after it came, by the server's clock; held pulls are not late."""
        self._add(partial(_delay, seconds), to, broker, times)

    def drop_answers(self, *, times: int | None = 1, to: Collection[int] = SENDS, broker: str | None = None) -> None:
        """Handle the request, and never answer."""
        self._add(_drop, to, broker, times)

    def cut_connections(self, *, times: int | None = 1, to: Collection[int] = SENDS, broker: str | None = None) -> None:
        """Handle the request, and close the connection instead of answering."""
        self._add(_cut, to, broker, times)

    def ignore_requests(self, *, times: int | None = 1, to: Collection[int] = SENDS, broker: str | None = None) -> None:
        """Neither handle the request nor answer, as if the network had lost it."""
        self._add(_ignore, to, broker, times)

    def clear(self) -> None:
        """Take back all orders."""
        with self._lock:
            self._orders = []

    def _add(self, apply: Apply, to: Collection[int], broker: str | None, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}; give 1 or more, or None for all until clear()")
        with self._lock:
            self._orders.append(_Order(apply, frozenset(to), broker, times))

    def interpose(self, broker: str, route: Route) -> Route:
        """Return a route that does what is ordered, and otherwise what the given one does."""

        def process(connection: Connection, command: Command, *requester: Any) -> Answer:
            self._connections.add(connection)
            apply = self._next(broker, route.code) if self._orders else None
            if apply is None:
                return route.process(connection, command, *requester)
            return apply(connection, command, lambda *asked: route.process(*asked, *requester))

        served = Route(
            route.code,
            process,
            route.header_type,
            route.audience,
            takes_large_bodies=route.takes_large_bodies,
            runs=(
                _Runs(route.runs, self._connections, lambda: bool(self._orders))
                if isinstance(route.runs, RunHandler)
                else None
            ),
            asks=route.asks,
        )
        served.runs_later = route.runs_later
        return served

    def _next(self, broker: str, code: int) -> Apply | None:
        with self._lock:
            for order in self._orders:
                if code in order.to and order.broker in {None, broker}:
                    if order.left is not None:
                        order.left -= 1
                        if not order.left:
                            self._orders.remove(order)
                    return order.apply
        return None

    def close_connections(self) -> None:
        """Close all connections that ever sent a request; for the event loop of the server."""
        for connection in list(self._connections):
            connection.close(_REASON)


class _Runs(RunHandler):
    """Handles requests together while no faults are ordered; an order counts single requests."""

    def __init__(
        self, handler: RunHandler, connections: weakref.WeakSet[Connection], has_orders: Callable[[], bool]
    ) -> None:
        self.fields = handler.fields
        self.fewest = handler.fewest
        self._handler = handler
        self._connections = connections
        self._has_orders = has_orders

    def accepts(self, command: Command) -> bool:
        return self._handler.accepts(command)

    def process(
        self, connection: Connection, command: Command, columns: Sequence[Sequence[bytes]], bodies: Sequence[memoryview]
    ) -> RunAnswers | RunAnswersFuture | None:
        self._connections.add(connection)
        return None if self._has_orders() else self._handler.process(connection, command, columns, bodies)


def _drop(connection: Connection, command: Command, serve: Serve) -> Answer:
    command.flag |= FLAG_ONEWAY  # to a one-way request nothing is answered
    return serve(connection, command)


def _ignore(_connection: Connection, _command: Command, _serve: Serve) -> Answer:
    return HELD


def _cut(connection: Connection, command: Command, serve: Serve) -> Answer:
    answer = _drop(connection, command, serve)
    connection.close(_REASON)
    return answer


def _delay(seconds: float, connection: Connection, command: Command, serve: Serve) -> Answer:
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    answer = serve(connection, command)
    if answer is HELD:
        return HELD
    late: asyncio.Future[Any] = loop.create_future()
    if isinstance(answer, asyncio.Future):
        answer.add_done_callback(lambda done: loop.call_at(due, _copy, done, late))
    elif isinstance(answer, bytes | list | RemotingCommand):
        loop.call_at(due, _resolve, late, answer)
    else:
        work = answer.work if isinstance(answer, InTurn) else answer

        async def answer_later() -> Any:
            found = await work
            await asyncio.sleep(due - loop.time())
            return found

        return InTurn(answer_later())
    return late


def _resolve(late: asyncio.Future[Any], answer: Any) -> None:
    if not late.done():
        late.set_result(answer)


def _copy(done: asyncio.Future[Any], late: asyncio.Future[Any]) -> None:
    if done.cancelled() or late.done():
        return
    error = done.exception()
    if error is None:
        late.set_result(done.result())
    else:
        late.set_exception(error)
