"""One TCP connection that carries requests and answers in both directions (NettyRemotingAbstract).

One read event is one batch: all complete frames are decoded, handled and answered with one write. The path from the
bytes read to the response is plain calls; only an answer that must wait becomes a task of the endpoint.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.frame import (
    LENGTH,
    LENGTH_AND_MARK,
    check_header_length,
    check_length,
    decode_frame,
    encode_frame,
    split_frame,
)
from rocketbroker.codec.remoting.handler import HELD, Answer, InTurn, Route
from rocketbroker.codec.remoting.json_header import HeaderFieldError
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, FLAG_RESPONSE, Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemoteProtocolError
from rocketbroker.transport.answers import body_too_long, encode_answer, error_answer, made_in_turn
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.outgoing_requests import OutgoingRequests
from rocketbroker.transport.peer_progress import PeerProgress
from rocketbroker.transport.receive_buffer import ReceiveBuffer
from rocketbroker.transport.request_run import FEWEST_IN_RUN, RequestRun
from rocketbroker.transport.request_turns import RequestTurns
from rocketbroker.transport.socket_options import set_options

log = logging.getLogger(__name__)

# Pieces and bytes of answers above which they are written before the read event ends.
_FLUSH_PIECES = 64
_FLUSH_BYTES = 256 * 1024
# Pending requests of one connection, and bytes of their bodies, at which it is not read until half are answered.
_MOST_OPEN = 1024
_MOST_BODY_BYTES = 4 * 1024 * 1024
# Smaller incomplete frames are not accounted for.
_SMALL_REST = 4 * 1024
# Length and mark.
_FRAME_HEAD = 8
# Causes of a slow request.
_HANDLER = "its handler, or requests of the same read event, kept the event loop busy"
_DISK = "its answer waited for the disk or for name servers"


class RemotingConnection(FrameWriter, asyncio.BufferedProtocol):
    """Implementation of ``codec.remoting.handler.Connection`` over an asyncio transport."""

    remote_address = "?"
    remote_host = bytes(8)
    last_read = 0.0
    waited_s = 0.0

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(asyncio.get_running_loop())
        self._endpoint = endpoint
        self._header_limit = endpoint.limits.max_header_length
        self._body_limit = endpoint.limits.max_request_body_size
        self._buffer = ReceiveBuffer(endpoint.shared_buffer)
        # Routes of the peer's audience, set when it connects.
        self._routes: dict[int, Route] = {}
        self._routes_by_prefix: dict[bytes, Route] = {}
        self._progress = PeerProgress(endpoint.limits)
        self._heard_at = 0.0
        # Reading is paused: the peer takes its answers slowly, or has too many pending requests.
        self._paused = False
        self._unread: bytes = b""
        # Time since which the unread bytes wait for other answers; 0 if they wait for the peer.
        self._unread_since = 0.0
        self.is_behind = False
        self._outgoing = OutgoingRequests(self, endpoint.opaque, endpoint.limits.max_push_bytes)
        self._open_requests = 0
        self._meter = endpoint.meter
        # Routes of the requests in this read event that were answered at once with bytes.
        self._answered: list[Route] = []
        self._run = RequestRun(self._header_limit)
        self._turns = RequestTurns(self._begin, self._close_request)
        # Memory held between events, as accounted at the endpoint, and the time of its last progress.
        self.held_bytes = 0
        self.held_since = 0.0
        self._is_settled = True

    # -- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        # uvloop's transports do not derive from asyncio.Transport.
        self._transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.remote_address = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            # Show the IPv4 peer of an IPv6 socket as IPv4.
            self.remote_host = host_bytes(address[0].removeprefix("::ffff:"), address[1])
        sock = transport.get_extra_info("socket")
        if not self._endpoint.accept(self, sock.fileno() if sock else -1):
            transport.abort()
            return
        self.admit()
        set_options(sock, self._endpoint.limits.send_buffer)
        transport.set_write_buffer_limits(high=self._endpoint.limits.write_high_water)
        self.last_read = self._heard_at = self._progress.taken_at = self._loop.time()

    def admit(self) -> None:
        """Choose the routes for the peer's audience, by its address."""
        if self._transport is not None:
            self._run.forget()
            self._routes, self._routes_by_prefix = self._endpoint.table_for(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._transport = None
        self._release()
        self._outgoing.lost()
        self._endpoint.gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio for the memory to read into."""
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio after a read: handle one batch."""
        self.last_read = self._loop.time()
        data = self._buffer.received(nbytes)
        if self._unread:
            # One more read event may follow pause_reading.
            self._unread += bytes(data)
            self._buffer.clear()
            return
        self._handle_batch(data)

    def pause_writing(self) -> None:
        """Called by asyncio: stop reading from a slow peer until it has taken its answers."""
        if self._endpoint.throttles:
            self.is_behind = True
            self._turns.stop()
            self._stop_hearing()
        if self._is_settled:
            self._is_settled = False
            self._loop.call_soon(self._settle)

    def resume_writing(self) -> None:
        """Called by asyncio."""
        if self.is_behind:
            self.is_behind = False
            self._outgoing.caught_up()
            self._progress.taken_at = self._loop.time()
            self._turns.resume()
            self._hear_again()
            self._settle(progressed=True)

    def _stop_hearing(self) -> None:
        if self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _hear_again(self) -> None:
        if not self._paused or self.is_behind or self._open_requests > _MOST_OPEN // 2:
            return
        if self._turns.body_bytes > _MOST_BODY_BYTES // 2:
            return
        self._paused = False
        self._heard_at = self._progress.frame_began_at = self._loop.time()
        unread, self._unread = self._unread, b""
        if unread:
            if self._unread_since:
                self.waited_s = self._loop.time() - self._unread_since
            self._handle_batch(memoryview(unread))
            self.waited_s = 0.0
        if not self._paused and self._transport is not None:
            self._transport.resume_reading()

    # -- reading

    def _handle_batch(self, data: memoryview) -> None:
        try:
            try:
                position, needed = self._handle_frames(data)
            finally:
                if self._run.frames:
                    self._handle_run(data)  # the requests before a broken frame
        except RemoteProtocolError as error:
            self._refuse(str(error))
            position = needed = len(data)
        if position == len(data):
            self._buffer.clear()
        elif self._paused:
            self._unread = bytes(data[position:])
            if not self.waited_s:
                self._unread_since = 0.0 if self.is_behind else self._loop.time()
            self._buffer.clear()
            self._is_settled = False
        else:
            if position or not self._buffer.held:
                # The time in which reading was paused does not count as the peer's delay.
                self._progress.frame_began_at = max(self.last_read, self._heard_at)
            self._buffer.keep(data[position:], needed)
            if len(data) - position > _SMALL_REST:
                self._is_settled = False
        self._endpoint.end_batch()
        if self._answered:
            self._meter.add_batch(self._answered, self._loop.time() - self.last_read, self.remote_address)
            self._answered = []
        self._flush()
        if not self._is_settled:
            self._settle(progressed=position > 0)

    def _handle_frames(self, data: memoryview) -> tuple[int, int]:
        """Handle all complete frames; return the position of the rest and the length of its frame."""
        position = 0
        end = len(data)
        limit = self._endpoint.frame_max_length
        run = self._run
        while end - position >= _FRAME_HEAD and not self._paused:
            length, mark = LENGTH_AND_MARK.unpack_from(data, position)
            if not 4 <= length <= limit:
                check_length(length, limit)
            start = position + 4
            following = start + length
            if following > end:
                check_header_length(mark, self._header_limit)
                return position, 4 + length
            # Few requests gain nothing from a run.
            is_many = run.frames or FEWEST_IN_RUN * (following - position) <= end - position
            if not (is_many and run.joins(data, start, mark, following)):
                if run.frames:
                    self._handle_run(data)
                self._handle_frame(data, start, mark, following, learns=bool(is_many) and run.learns)
            position = following
            if self._transport is None:
                return end, 0
            if len(self._out) > _FLUSH_PIECES:
                self._endpoint.end_batch()
                self._flush()
        if end - position >= LENGTH.size and not self._paused:
            # Check the length at once: a peer with a wrong length may send nothing more.
            check_length(LENGTH.unpack_from(data, position)[0], limit)
        return position, _FRAME_HEAD

    def _handle_frame(self, data: memoryview, start: int, mark: int, end: int, *, learns: bool = False) -> None:
        """Handle one frame with its mark at ``start``; ``learns`` if it might have joined a run by another template."""
        # The high byte of the mark is 0 for JSON, so a mark above the limit means a long header or another encoding.
        header_end = start + 4 + mark
        # Fast path for the JSON header of a served code; all others, broken ones included, take the slow path.
        header = data[start + 4 : header_end]
        route = (
            self._routes_by_prefix.get(bytes(header[:12])) if header_end <= end and mark <= self._header_limit else None
        )
        if route is None:
            self._handle_other(data[start:end])
            return
        try:
            command = route.decode_json(header)
        except HeaderFieldError:
            self._handle_other(data[start:end])
            return
        if command.flag & FLAG_RESPONSE:
            # A response code may equal a served request code.
            self._handle_other(data[start:end])
            return
        if end - header_end > self._body_limit and self._refuse_body(route, command, end - header_end):
            return
        body = data[header_end:end]
        command.body = bytes(body) if route.runs_later else body
        if learns:
            self._run.missed(route, header, command)
        self._process(route, command)

    def _handle_run(self, data: memoryview) -> None:
        """Handle the requests of the run together, or one by one if they are few or one of them is special."""
        frames = self._run.frames
        if answered := self._run.process(self, data, self._take):
            self._answered += answered[0]
            self._out += answered[1]
            return
        for start, mark, end in frames:
            self._handle_frame(data, start, mark, end)

    def _refuse_body(self, route: Route, command: Command, length: int) -> bool:
        """Reject a request whose body is too long for its route; return false if it may be served."""
        if route.takes_large_bodies:
            return False
        answer = body_too_long(route.code, length, self._body_limit)
        log.warning("%s: %s", self.remote_address, answer.remark)
        self._take(command, answer)
        return True

    def _handle_other(self, frame: memoryview) -> None:
        """Handle a response, an unknown code, a binary header or a broken one."""
        check_header_length(int.from_bytes(frame[:4], "big"), self._header_limit)
        serialize_type, header, body = split_frame(frame)
        command = decode_frame(frame)
        if command.is_response:
            self._outgoing.answered(command)
            return
        route = self._routes.get(command.code)
        if route is None:
            text = f" request type {command.code} not supported"
            self._take(command, response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        try:
            command = route.decode(serialize_type, header)
        except HeaderFieldError as error:
            self._take(command, response(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        if len(body) > self._body_limit and self._refuse_body(route, command, len(body)):
            return
        command.body = bytes(body) if route.runs_later else body
        self._process(route, command)

    def _process(self, route: Route, command: Command) -> None:
        try:
            answer = route.process(self, command)
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(route.code, error)
        if type(answer) is bytes and not command.flag & FLAG_ONEWAY:
            self._out.append(answer)
            self._answered.append(route)
            return
        if route.runs_later and isinstance(answer, Awaitable):
            answer = InTurn(answer)
        self._take(command, answer)

    def answer(self, command: Command, make: Callable[[], Answer]) -> None:
        """Answer a ``HELD`` request with what ``make`` returns or raises, as if its handler had."""
        try:
            answer = InTurn(made_in_turn(make)) if self.is_behind else make()
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(command.code, error)
        self._take(command, answer, command.received_at, is_suspended=True)
        self._flush_soon()

    def _take(self, command: Command, answer: Answer, received_at: float = 0.0, *, is_suspended: bool = False) -> None:
        """Answer now, or when the response is ready."""
        command.received_at = received_at or self.last_read
        command.is_suspended = is_suspended
        kind = type(answer)
        if kind is list or kind is RemotingCommand:
            self._answer(command, answer, _HANDLER)
            return
        body_bytes = len(command.body)
        if type(command.body) is memoryview:
            # A pending request must not keep the receive buffer.
            command.body = b""
        if isinstance(answer, asyncio.Future):
            self._one_more_open()
            answer.add_done_callback(partial(self._answer_done, command))
        elif isinstance(answer, InTurn):
            self._turns.add(command, answer.work)
            self._one_more_open()
            if self._turns.body_bytes:
                self._is_settled = False
        elif isinstance(answer, Awaitable):
            self._turns.begin(command, answer, body_bytes)
            self._is_settled = False
            self._one_more_open()
        elif answer is not HELD:
            self._answer(command, answer, _HANDLER)

    def _one_more_open(self) -> None:
        self._open_requests += 1
        is_full = self._open_requests >= _MOST_OPEN or self._turns.body_bytes > _MOST_BODY_BYTES
        if is_full and self._endpoint.throttles and not self._paused:
            self._stop_hearing()

    def _answer_done(self, command: Command, future: asyncio.Future[Any]) -> None:
        """Answer with the result of a future; sends wait in futures because a task costs more."""
        self._open_requests -= 1
        if not future.cancelled():
            error = future.exception()
            self._answer(command, future.result() if error is None else error_answer(command.code, error), _DISK)
            self._flush_soon()
        if self._paused:
            self._hear_again()

    def _begin(self, command: Command, work: Awaitable[Any]) -> asyncio.Task[None]:
        return self._endpoint.tasks.start(self._answer_when_done(command, work), f"request-{command.code}")

    def _close_request(self) -> None:
        self._open_requests -= 1
        if self._paused:
            self._hear_again()
        if not self._is_settled:
            self._settle(progressed=True)

    def drop_waiting(self) -> None:
        """Drop the queued requests."""
        self._turns.stop()
        self._open_requests -= self._turns.clear()

    # -- memory

    def _settle(self, *, progressed: bool = False) -> None:
        """Account for the memory held until a later event."""
        unwritten = 0 if self._transport is None else self._transport.get_write_buffer_size()
        held = self._buffer.held + len(self._unread) + self._turns.body_bytes + unwritten
        if progressed or not self.held_bytes:
            self.held_since = self._loop.time()
        change, self.held_bytes = held - self.held_bytes, held
        self._is_settled = held == 0
        if change:
            self._endpoint.hold(change)

    def _release(self) -> None:
        """Free the held memory, except that of running requests."""
        self._unread = b""
        self._buffer.clear()
        self.drop_waiting()
        self._settle()

    def drop(self, reason: str) -> None:
        """Close at once and free the held memory; unsent answers are lost."""
        transport, self._transport = self._transport, None
        if transport is not None:
            log.warning("dropping the connection from %s: %s", self.remote_address, reason)
            transport.abort()
        self._release()

    async def _answer_when_done(self, command: Command, waiting: Awaitable[Any]) -> None:
        began = self._loop.time()
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection continues
            answer = error_answer(command.code, error)
        turn_s, work_s = began - command.received_at, self._loop.time() - began
        self._answer(command, answer, f"it waited {turn_s:.2f} s for its turn and took {work_s:.2f} s of work")
        self._flush_soon()

    # -- writing

    def _answer(self, command: Command, answer: Any, cause: str) -> None:
        """Count a request and queue its response; every response but the bytes of a handler leaves here.

        ``cause`` says where the time of a slow request went.
        """
        if isinstance(answer, list):
            pieces = answer
        else:
            pieces = [answer if isinstance(answer, bytes) else encode_answer(command, answer)]
        self._meter.add(command, pieces[0], self._loop.time() - command.received_at, self.remote_address, cause)
        if command.flag & FLAG_ONEWAY:
            return
        self._out.extend(pieces)
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > _FLUSH_BYTES:
            self._endpoint.end_batch()
            self._flush()

    def send_oneway(self, command: Command) -> bool:
        """Send a one-way request; return false if it was dropped because the peer is gone or too far behind."""
        return self._outgoing.send_oneway(command)

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer."""
        return await self._outgoing.invoke(command, timeout_s)

    @property
    def is_open(self) -> bool:
        """True if writes still reach the peer."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self, reason: str) -> None:
        """Send the written answers, then close; log the reason."""
        if self._transport is not None and not self._transport.is_closing():
            log.info("closing the connection from %s: %s", self.remote_address, reason)
            self._transport.close()

    def check(self, now: float) -> None:
        """Drop a peer that is late with a frame or with its answers; close an idle one."""
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        if waiting or not self._is_settled:
            self._settle()
        # The rest of a frame cannot arrive while reading is paused.
        reason = self._progress.lateness(now, waiting, 0 if self._paused else self._buffer.received_bytes)
        if reason:
            self.drop(reason)
            return
        max_idle_s = self._endpoint.limits.max_idle_s
        is_idle = not waiting and not self._paused and now - max(self.last_read, self._heard_at) > max_idle_s
        if is_idle and self._endpoint.throttles:
            self.close(f"nothing was received for {max_idle_s:g} s (serverChannelMaxIdleTimeSeconds)")

    def _refuse(self, reason: str) -> None:
        """Answer a broken frame and close: the next frame cannot be found."""
        log.warning("%s broke the protocol: %s", self.remote_address, reason)
        self._out.append(encode_frame(response(ResponseCode.SYSTEM_ERROR, reason)))
        self._endpoint.end_batch()
        self._flush()
        self.close(reason)
