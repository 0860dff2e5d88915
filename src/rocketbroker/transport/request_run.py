"""Requests of one read event whose headers fit one template, handled together.

A connection learns the template from a request that it has decoded. That takes a millisecond, so after each template it
waits for twice as many requests that do not fit before it learns the next.
"""

import logging
from typing import Final, NamedTuple

from rocketbroker.codec.remoting.handler import Connection, Route, RunHandler
from rocketbroker.codec.remoting.header_template import HeaderTemplate, make_template
from rocketbroker.codec.remoting.remoting_command import Command

log = logging.getLogger(__name__)

# Fewer requests are handled faster one by one.
FEWEST_IN_RUN: Final = 6
# As many answers are written together.
_MOST: Final = 64
# Requests outside of runs before the first template is learned, and between two in the end.
_FIRST_MISSES: Final = 4
_MOST_MISSES: Final = 4096


class _Kind(NamedTuple):
    """Kind of the requests in a run: those of a route that fit a template."""

    route: Route
    handler: RunHandler
    template: HeaderTemplate


class RequestRun:
    """The run of one connection.

    Args:
        header_limit: bytes of the longest header that is accepted.

    Attributes:
        frames: the frames in the run: position of the mark, mark, position of the end.
        learns: the request that is handled now came with others, and fits no template.
    """

    __slots__ = ("_header_limit", "_kind", "_misses", "_patience", "_values", "frames", "learns")

    def __init__(self, header_limit: int) -> None:
        self._header_limit = header_limit
        self._kind: _Kind | None = None
        self.frames: list[tuple[int, int, int]] = []
        self._values: list[tuple[bytes, ...]] = []
        self._misses = 0
        self._patience = _FIRST_MISSES
        self.learns = False

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

    def process(self, connection: Connection, data: memoryview) -> tuple[Route, bytes] | None:
        """End the run; return its route and the answers, or ``None`` if its frames must be handled one by one."""
        frames, values, kind = self.frames, self._values, self._kind
        self.frames, self._values = [], []
        if len(frames) < FEWEST_IN_RUN or kind is None:
            return None
        bodies = [data[start + 4 + mark : end] for start, mark, end in frames]
        try:
            answers = kind.handler.process(connection, kind.template.command, values, bodies)
        except Exception:
            # One by one, the request that fails gets its answer, and harms no other.
            log.exception("requests with code %d failed together; each is handled alone", kind.route.code)
            return None
        return None if answers is None else (kind.route, answers)

    def missed(self, route: Route, header: memoryview, command: Command) -> None:
        """Note a request that fits no template; learn one from it after some of them."""
        self.learns = False
        self._misses += 1
        handler = route.runs
        if self._misses < self._patience or handler is None or not handler.accepts(command):
            return
        self._misses = 0
        self._patience = min(2 * self._patience, _MOST_MISSES)
        template = make_template(bytes(header), command, handler.fields, route.decode_json)
        if template is not None:
            self._kind = _Kind(route, handler, template)

    def forget(self) -> None:
        """Forget the template: the routes of the connection have changed."""
        self._kind = None
