"""Requests of one read event whose headers fit one template, handled together.

A connection learns the template from a request that it has decoded. That takes a millisecond, so after each template it
waits for twice as many requests that do not fit before it learns the next.
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from rocketbroker.codec.remoting.handler import Connection, Route, RunAnswers, RunHandler
from rocketbroker.codec.remoting.header_template import HeaderTemplate, make_template
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.transport.answers import error_answer

# Requests of one read event from which a template is learned.
_FEWEST: Final = 3
# As many answers are written together.
_MOST: Final = 64
# Requests outside of runs before the first template is learned, and between two in the end.
_FIRST_MISSES: Final = 4
_MOST_MISSES: Final = 4096
# Bytes. A pattern takes time by its header's length, and up to 36 kB; the cache of ``re`` keeps 512.
_LONGEST_HEADER: Final = 2048


class _Kind(NamedTuple):
    """Kind of the requests in a run: those of a route that fit a template."""

    route: Route
    handler: RunHandler
    template: HeaderTemplate


class HandledRun(msgspec.Struct):
    """Requests that were handled together, and their answers.

    Attributes:
        route: their route.
        command: one of them, without its body.
        values: the values in which each differs from it; the opaque last.
        received_at: time of their read event.
        answers: their answers, or a future of these.
    """

    route: Route
    command: Command
    values: Sequence[Sequence[bytes]]
    received_at: float
    answers: RunAnswers | Awaitable[RunAnswers] = b""

    def __len__(self) -> int:
        return len(self.values)

    def failed(self, error: BaseException) -> Sequence[Command]:
        """Return the answers for an error of their handler."""
        return [error_answer(self.route.code, error)] * len(self)

    def commands(self) -> Iterator[Command]:
        """Yield the requests one by one."""
        for each in self.values:
            yield msgspec.structs.replace(self.command, opaque=int(each[-1]), received_at=self.received_at)


class RequestRun:
    """The run of one connection.

    Args:
        header_limit: bytes of the longest header that is accepted.

    Attributes:
        frames: the frames in the run: position of the mark, mark, position of the end.
        learns: the last request that did not join fits no template.
        fewest: fewer requests are handled faster one by one.
    """

    __slots__ = ("_header_limit", "_kind", "_misses", "_patience", "_values", "fewest", "frames", "learns")

    def __init__(self, header_limit: int) -> None:
        self._header_limit = header_limit
        self._kind: _Kind | None = None
        self.frames: list[tuple[int, int, int]] = []
        self._values: list[tuple[bytes, ...]] = []
        self._misses = 0
        self._patience = _FIRST_MISSES
        self.learns = False
        self.fewest = _FEWEST

    def joins(self, data: memoryview, start: int, mark: int, end: int) -> bool:
        """Add the request of a frame, with its mark at ``start``, if its header fits the template and there is room."""
        kind = self._kind
        if kind is None:
            self.learns = True
            return False
        header_end = start + 4 + mark
        match = kind.template.fullmatch(data, start + 4, header_end)
        if match is None or header_end > end or mark > self._header_limit or len(self.frames) == _MOST:
            self.learns = match is None
            return False
        self._values.append(match.groups())
        self.frames.append((start, mark, end))
        return True

    def process(self, connection: Connection, data: memoryview) -> HandledRun | None:
        """End the run and handle its requests; return ``None`` to handle each of its frames alone.

        Args:
            connection: the connection.
            data: the buffer of the frames.
        """
        frames, values, kind = self.frames, self._values, self._kind
        self.frames, self._values = [], []
        if len(frames) < self.fewest or kind is None:
            return None
        bodies = [data[start + 4 + mark : end] for start, mark, end in frames]
        command = kind.template.command
        handled = HandledRun(kind.route, command, values, connection.last_read)
        try:
            answers = kind.handler.process(connection, command, values, bodies)
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            # Not one by one: they may be handled already.
            answers = handled.failed(error)
        if answers is None:
            return None
        handled.answers = answers
        return handled

    def missed(self, route: Route, header: memoryview, command: Command) -> None:
        """Note a request that fits no template; learn one from it after some of them."""
        self._misses += 1
        handler = route.runs
        if self._misses < self._patience or len(header) > _LONGEST_HEADER:
            return
        if handler is None or not handler.accepts(command):
            return
        self._misses = 0
        self._patience = min(2 * self._patience, _MOST_MISSES)
        template = make_template(bytes(header), command, handler.fields, route.decode_json)
        if template is not None:
            self._kind = _Kind(route, handler, template)
            self.fewest = handler.fewest

    def forget(self) -> None:
        """Forget the template: the routes of the connection have changed."""
        self._kind = None
        self.fewest = _FEWEST
