"""Requests of one read event whose headers fit one template, handled together.

A connection learns the template from a request that it has decoded. That takes a millisecond, so after each template it
waits for twice as many requests that do not fit before it learns the next.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from rocketbroker.codec.remoting.frame import LENGTH_AND_MARK
from rocketbroker.codec.remoting.handler import Connection, Route, RunAnswers, RunAnswersFuture, RunHandler
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
        opaques: the opaque of each.
        received_at: time of their read event.
        answers: their answers, or a future of these.
    """

    route: Route
    command: Command
    opaques: Sequence[bytes]
    received_at: float
    answers: RunAnswers | RunAnswersFuture = b""

    def __len__(self) -> int:
        return len(self.opaques)

    def failed(self, error: BaseException) -> Sequence[Command]:
        """Return the answers for an error of their handler."""
        return [error_answer(self.route.code, error)] * len(self)

    def commands(self) -> Iterator[Command]:
        """Yield the requests one by one."""
        for opaque in self.opaques:
            yield msgspec.structs.replace(self.command, opaque=int(opaque), received_at=self.received_at)


class RequestRun:
    """The run of one connection.

    Args:
        header_limit: bytes of the longest header that is accepted.
        frame_limit: the longest frame that is accepted, without the bytes of its length.

    Attributes:
        learns: the request at which the last run ended fits no template.
        fewest: fewer requests are handled faster one by one.
    """

    __slots__ = (
        "_bodies",
        "_frame_limit",
        "_header_limit",
        "_kind",
        "_misses",
        "_patience",
        "_values",
        "fewest",
        "learns",
    )

    def __init__(self, header_limit: int, frame_limit: int) -> None:
        self._header_limit = header_limit
        self._frame_limit = frame_limit
        self._kind: _Kind | None = None
        self._values: list[tuple[bytes, ...]] = []
        self._bodies: list[memoryview] = []
        self._misses = 0
        self._patience = _FIRST_MISSES
        self.learns = False
        self.fewest = _FEWEST

    def collect(self, data: memoryview, position: int) -> int:
        """Begin a run with the whole frames from a position on that fit the template; return where they end."""
        kind = self._kind
        if kind is None:
            self.learns = True
            return position
        self._values, self._bodies = [], []
        values, bodies = self._values, self._bodies
        fullmatch, unpack_from = kind.template.fullmatch, LENGTH_AND_MARK.unpack_from
        header_limit, frame_limit, end = self._header_limit, self._frame_limit, len(data)
        while len(values) < _MOST and end - position >= LENGTH_AND_MARK.size:
            length, mark = unpack_from(data, position)
            header_end, following = position + 8 + mark, position + 4 + length
            if mark > header_limit or not header_end <= following <= end or length > frame_limit:
                break
            match = fullmatch(data, position + 8, header_end)
            if match is None:
                break
            values.append(match.groups())
            bodies.append(data[header_end:following])
            position = following
        self.learns = not values
        return position

    def process(self, connection: Connection) -> HandledRun | None:
        """End the run and handle its requests; return ``None`` to handle each of its frames alone."""
        values, bodies, kind = self._values, self._bodies, self._kind
        self._values, self._bodies = [], []
        if len(values) < self.fewest or kind is None:
            return None
        command = kind.template.command
        # Without the other values: they may be long, and their answers may wait for the disk.
        opaques = [each[-1] for each in values]
        handled = HandledRun(kind.route, command, opaques, connection.last_read)
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
