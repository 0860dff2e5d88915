"""Frames of one connection, decoded and handed to the routes of their requests.

The path from the bytes read to the response is plain calls; only an answer that must wait is left to the responder.
Requests of one read event whose headers fit one template are a run, and are handled together.
"""

import inspect
import logging
from time import perf_counter
from typing import Final, NamedTuple

from rocketbroker.codec.remoting.frame import (
    LENGTH,
    LENGTH_AND_MARK,
    HeaderFieldError,
    check_header_length,
    check_length,
    decode_parts,
    split_frame,
)
from rocketbroker.codec.remoting.handler import Connection, InTurn, Route, RunKind, Shortcut
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, FLAG_RESPONSE, Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.access import LONG_PREFIX, SHORT_PREFIX, RouteTable
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.outgoing_requests import OutgoingRequests
from rocketbroker.transport.responder import HandledRun, Responder, error_answer

log = logging.getLogger(__name__)

# Seconds of the event loop for the requests of one read event; the rest waits for the connection's next turn. A read of
# 256 KiB of usual sends takes 10 ms, but it has room for a thousand requests of which each may take a millisecond.
_TURN_S = 0.02
# Pieces of answers above which they are written before the read event ends.
_FLUSH_PIECES = 64
# Requests of one read event from which a template is learned.
_FEWEST: Final = 3
# As many answers are written together.
_MOST: Final = 64
# Requests outside of runs before the first template is learned, and between two in the end.
_FIRST_MISSES: Final = 4
_MOST_MISSES: Final = 4096
# Requests from one that no run takes to the next that is looked at, in the end. That may take a second decoding.
# A prime number, so that those that come by turns with others do not meet it each time.
_MOST_UNFIT: Final = 61
# Bytes. A pattern takes time by its header's length, and up to 36 kB; the cache of ``re`` keeps 512.
_LONGEST_HEADER: Final = 2048
_COMMA: Final = ord(",")  # after a code of six digits; answers to a client have none there
_NAMES: Final = {int(each): each.name for each in RequestCode}


class _Kind(NamedTuple):
    """Kind of the requests in a run, and their route."""

    route: Route
    run: RunKind


class RequestRun:
    """Requests of one read event whose headers fit the template of their connection.

    The connection learns a template from a request that it has decoded. That takes a millisecond, so after each
    template it waits for twice as many requests that do not fit before it learns the next: a peer whose headers never
    fit costs no more than one that sends few of them. Nothing is learned from a request that no run takes. The next one
    that is looked at comes right after it, then 3 later, then 7, up to 61: a peer that also sends others learns soon.

    Args:
        header_limit: bytes of the longest header that is accepted.
        frame_limit: the longest frame that is accepted, without the bytes of its length.

    Attributes:
        learns: the request at which the last run ended fits no template.
        fewest: fewer requests are handled faster one by one.
        shortcut: decoder and route of a request that comes alone and fits the template; ``None`` without one.
    """

    __slots__ = (
        "_bodies",
        "_frame_limit",
        "_header_limit",
        "_kind",
        "_misses",
        "_patience",
        "_unfit",
        "_values",
        "fewest",
        "learns",
        "shortcut",
    )

    def __init__(self, header_limit: int, frame_limit: int) -> None:
        self._header_limit = header_limit
        self._frame_limit = frame_limit
        self._kind: _Kind | None = None
        self._values: list[tuple[bytes, ...]] = []
        self._bodies: list[memoryview] = []
        self._misses = 0
        self._patience = _FIRST_MISSES
        self._unfit = 1
        self.learns = False
        self.fewest = _FEWEST
        self.shortcut: Shortcut | None = None

    def collect(self, data: memoryview, position: int) -> int:
        """Begin a run with the whole frames from a position on that fit the template; return where they end."""
        kind = self._kind
        if kind is None:
            self.learns = True
            return position
        self._values, self._bodies = [], []
        values, bodies = self._values, self._bodies
        fullmatch, unpack_from = kind.run.template.fullmatch, LENGTH_AND_MARK.unpack_from
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
        command = kind.run.template.command
        columns = list(zip(*values, strict=True))
        # Without the other values: they may be long, and their answers may wait for the disk.
        handled = HandledRun(kind.route, command, columns[-1], connection.last_read)
        try:
            answers = kind.run.process(connection, command, columns, bodies)
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
        if handler is None:
            return
        if not handler.accepts(command):
            self._misses, self._unfit = self._patience - self._unfit, min(2 * self._unfit + 1, _MOST_UNFIT)
            return
        self._misses, self._unfit = 0, 1
        self._patience = min(2 * self._patience, _MOST_MISSES)
        run = handler.learn(bytes(header), command, route.decode_json)
        if run is not None:
            self._kind = _Kind(route, run)
            self.fewest = handler.fewest
            self.shortcut = run.shortcut

    def forget(self) -> None:
        """Forget the template: the routes of the connection have changed."""
        self._kind = self.shortcut = None
        self.fewest = _FEWEST


class FrameReader:
    """Handles the frames of each read event: responses, and requests by the routes of the peer's audience.

    Args:
        connection: the connection, for the handlers.
        endpoint: limits, and the end of a batch.
        writer: takes the responses that a handler returns as bytes.
        responder: takes all other answers.
        outgoing: takes the responses to own requests.

    Attributes:
        is_stopped: no frame is handled: the peer takes its answers slowly, has too many pending requests, or has used
            up its turn.
        turn_is_over: the reason is the turn.
        answered: routes of the requests in this read event that were answered at once with bytes.
    """

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        writer: FrameWriter,
        responder: Responder,
        outgoing: OutgoingRequests,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._header_limit = endpoint.limits.max_header_length
        self._body_limit = endpoint.limits.max_request_body_size
        self._writer = writer
        self._responder = responder
        self._outgoing = outgoing
        self._routes: dict[int, Route] = {}
        self._routes_by_prefix: dict[bytes, Route] = {}
        self._run = RequestRun(self._header_limit, endpoint.frame_max_length)
        self.is_stopped = False
        self.turn_is_over = False
        self.answered: list[Route] = []

    def use(self, routes: RouteTable) -> None:
        """Set the routes of the peer's audience."""
        self._run.forget()
        self._routes, self._routes_by_prefix = routes

    def handle(self, data: memoryview) -> tuple[int, int]:
        """Handle all complete frames; return the position of the rest and the length of its frame.

        Frames that are left after ``_TURN_S`` wait for another turn of the event loop: requests of other connections
        and timers come between. A run is never divided by it, as the time is looked at between frames and runs.

        Raises:
            RemoteProtocolError: A frame is broken; the requests before it were handled.
        """
        position = 0
        end = len(data)
        limit = self._endpoint.frame_max_length
        run, writer = self._run, self._writer
        turn_ends = perf_counter() + _TURN_S
        while end - position >= LENGTH_AND_MARK.size and not self.is_stopped:
            length, mark = LENGTH_AND_MARK.unpack_from(data, position)
            if not 4 <= length <= limit:
                check_length(length, limit)
            start = position + 4
            following = start + length
            if following > end:
                check_header_length(mark, self._header_limit)
                return position, 4 + length
            if position and perf_counter() >= turn_ends and self._endpoint.throttles:
                self.is_stopped = self.turn_is_over = True
                break
            # Few requests gain nothing from a run.
            is_many = run.fewest * (following - position) <= end - position
            if is_many and (run_end := run.collect(data, position)) > position:
                self._handle_run(data, position, run_end)
                position = run_end
            else:
                self._handle_frame(data, start, mark, following, learns=is_many and run.learns)
                position = following
            if writer.transport is None:
                return end, 0
            if len(writer.frames) > _FLUSH_PIECES:
                self._endpoint.end_batch()
                writer.flush()
        if end - position >= LENGTH.size and not self.is_stopped:
            # Check the length at once: a peer with a wrong length may send nothing more.
            check_length(LENGTH.unpack_from(data, position)[0], limit)
        return position, LENGTH_AND_MARK.size

    def _handle_frame(self, data: memoryview, start: int, mark: int, end: int, *, learns: bool = False) -> None:
        """Handle one frame with its mark at ``start``; ``learns`` if it might have joined a run by another template."""
        # The high byte of the mark is 0 for JSON, so a mark above the limit means a long header or another encoding.
        header_end = start + 4 + mark
        shortcut, fits = self._run.shortcut, False
        if shortcut is not None and not learns and header_end <= end and mark <= self._header_limit:
            match = shortcut.fullmatch(data, start + 4, header_end)
            fits = match is not None
            if match is not None:
                command = shortcut.decode(self._connection, match.groups(), data[header_end:end])
                if command is not None:
                    self._process(shortcut.route, command)
                    return
        # Fast path for the JSON header of a served code; all others, broken ones included, take the slow path.
        header = data[start + 4 : header_end]
        routes = self._routes_by_prefix
        route = None
        if header_end <= end and mark <= self._header_limit:
            route = routes.get(bytes(header[:SHORT_PREFIX]))
            if route is None and mark >= LONG_PREFIX and header[LONG_PREFIX - 1] == _COMMA:
                route = routes.get(bytes(header[:LONG_PREFIX]))
        if route is None:
            self._handle_other(data[start:end])
            return
        try:
            command = route.decode_json(header)
        except HeaderFieldError:
            self._handle_other(data[start:end])
            return
        if command.flag & FLAG_RESPONSE or command.code != route.code:
            # A response code may equal a served request code. Of two codes in a header the last one counts.
            self._handle_other(data[start:end])
            return
        if end - header_end > self._body_limit and self._refuse_body(route, command, end - header_end):
            return
        body = data[header_end:end]
        command.body = bytes(body) if route.runs_later else body
        # One that fits and is refused has nothing new to learn.
        if learns or (not fits and route.runs is not None and route.runs.learns_alone):
            self._run.missed(route, header, command)
        self._process(route, command)

    def _handle_run(self, data: memoryview, position: int, end: int) -> None:
        """Handle the requests of the run together, or one by one if they are few or one of them is special."""
        run = self._run.process(self._connection)
        if run is None:
            while position < end:
                length, mark = LENGTH_AND_MARK.unpack_from(data, position)
                start, position = position + 4, position + 4 + length
                self._handle_frame(data, start, mark, position)
        elif isinstance(run.answers, bytes):
            self.answered += [run.route] * len(run)
            self._writer.frames.append(run.answers)
        else:
            self._responder.take_run(run)

    def _refuse_body(self, route: Route, command: Command, length: int) -> bool:
        """Reject a request whose body is too long for its route; return false if it may be served."""
        if route.takes_large_bodies:
            return False
        answer = response(
            ResponseCode.SYSTEM_ERROR,
            f"maxRequestBodySize: the body of request code {route.code} has {length:,} bytes, above the limit of "
            f"{self._body_limit:,}; split the request or raise maxRequestBodySize",
        )
        log.warning("%s: %s", self._connection.remote_address, answer.remark)
        self._responder.take(command, answer)
        return True

    def _handle_other(self, frame: memoryview) -> None:
        """Handle a response, an unknown code, a binary header or a broken one."""
        check_header_length(int.from_bytes(frame[:4], "big"), self._header_limit)
        serialize_type, header, body = split_frame(frame)
        command = decode_parts(serialize_type, header, body)
        if command.is_response:
            self._outgoing.answered(command)
            return
        route = self._routes.get(command.code)
        if route is None:
            # RocketMQ's text, and what a newer client wanted.
            name = _NAMES.get(command.code)
            text = f" request type {command.code} not supported" + (f": this server has no {name}" if name else "")
            self._responder.take(command, response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        try:
            command = route.decode(serialize_type, header)
        except HeaderFieldError as error:
            self._responder.take(command, response(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        if len(body) > self._body_limit and self._refuse_body(route, command, len(body)):
            return
        command.body = bytes(body) if route.runs_later else body
        self._process(route, command)

    def _process(self, route: Route, command: Command) -> None:
        try:
            answer = route.process(self._connection, command)
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(route.code, error)
        if type(answer) is bytes and not command.flag & FLAG_ONEWAY:
            self._writer.frames.append(answer)
            self.answered.append(route)
            return
        # A future needs no turn: an access check has rejected the request, and answers late.
        if route.runs_later and inspect.iscoroutine(answer):
            answer = InTurn(answer)
        self._responder.take(command, answer)
