"""One TCP connection that carries requests and answers in both directions (NettyRemotingAbstract).

One read event is one batch: all complete frames are decoded, handled and answered with one write. The path from bytes
read to response bytes is plain calls; only an answer that must wait becomes a task of the endpoint.
"""

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, cast

from rocketbroker.codec.remoting.frame import (
    LENGTH,
    LENGTH_AND_MARK,
    MAX_HEADER_LENGTH,
    check_length,
    decode_frame,
    encode_frame,
    split_frame,
)
from rocketbroker.codec.remoting.handler import Buffer, Route
from rocketbroker.codec.remoting.json_header import HeaderFieldError
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, FLAG_RESPONSE, Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import (
    RemoteProtocolError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rocketbroker.transport.answers import encode_answer, error_answer
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.peer_address import host_bytes
from rocketbroker.transport.receive_buffer import ReceiveBuffer

log = logging.getLogger(__name__)

# Answers to one read are handed over when they are so many pieces or bytes; up to so many bytes they are joined first.
_FLUSH_PIECES = 64
_FLUSH_BYTES = 256 * 1024
_JOIN_LIMIT = 64 * 1024
# Requests of one connection that wait for their answers; with so many it is not heard until half of them are answered.
_MOST_OPEN = 1024
# So many of them are at work at a time, since each may make a large answer, and none while the peer is slow.
_MOST_AT_WORK = 4
# Opaques are Java ints; the count begins anew after 2,147,483,647 requests.
_MAX_OPAQUE = 0x7FFFFFFF
# Length and mark.
_FRAME_HEAD = 8


class RemotingConnection(asyncio.BufferedProtocol):
    """Implements ``codec.remoting.handler.Connection`` over an asyncio transport."""

    remote_address = "?"
    remote_host = bytes(8)
    last_read = 0.0
    waited_s = 0.0

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._buffer = ReceiveBuffer(endpoint.shared_buffer)
        self._transport: asyncio.Transport | None = None
        # What the peer may send, settled when it connects.
        self._routes: dict[int, Route] = {}
        self._routes_by_prefix: dict[bytes, Route] = {}
        self._pending: dict[int, asyncio.Future[Command]] = {}
        self._out: list[Buffer] = []
        # Of large answers; those to sends are few bytes each.
        self._out_bytes = 0
        self._flushes = False
        # Bytes that waited for the peer at the last look, and when it last took some.
        self._untaken = 0
        self._taken_at = self._heard_at = 0.0
        # Not heard for now, since it takes its answers slowly or has too many open requests.
        self._paused = False
        self._unread: bytes = b""
        # Since when that waits for answers to others; 0 when the peer itself is what it waits for.
        self._unread_since = 0.0
        self.is_behind = False
        # Requests written since the peer is behind.
        self._pushed_bytes = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._open_requests = 0
        self._turns = asyncio.Semaphore(_MOST_AT_WORK)

    # -- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        # uvloop's transports do not derive from asyncio.Transport.
        self._transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.remote_address = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            self.remote_host = host_bytes(address)
        if not self._endpoint.has_room(self.remote_address):
            transport.abort()
            return
        self.admit()
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._endpoint.limits.send_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._endpoint.limits.send_buffer)
        transport.set_write_buffer_limits(high=self._endpoint.limits.write_high_water)
        self.last_read = self._heard_at = self._taken_at = self._loop.time()
        self._endpoint.connections.add(self)

    def admit(self) -> None:
        """Settle what the peer may send, by its address."""
        if self._transport is not None:
            self._routes, self._routes_by_prefix = self._endpoint.table_for(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._transport = None
        self._unread = b""
        self._buffer.clear()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(RemotingSendError(f"the connection to {self.remote_address} was lost"))
        self._pending.clear()
        self._caught_up.set()
        self._endpoint.gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio: where to read to."""
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: handle one batch."""
        self.last_read = self._loop.time()
        data = self._buffer.received(nbytes)
        if self._unread:
            # Read events may still come once after pause_reading.
            self._unread += bytes(data)
            self._buffer.clear()
            return
        self._handle_batch(data)

    def pause_writing(self) -> None:
        """Called by asyncio: the peer reads slower than it asks, so it is not heard until it catches up."""
        if self._endpoint.throttles:
            self.is_behind = True
            self._caught_up.clear()
            self._stop_hearing()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        if self.is_behind:
            self.is_behind = False
            self._pushed_bytes = 0
            self._taken_at = self._loop.time()
            self._caught_up.set()
            self._hear_again()

    def _stop_hearing(self) -> None:
        if self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _hear_again(self) -> None:
        if not self._paused or self.is_behind or self._open_requests > _MOST_OPEN // 2:
            return
        self._paused = False
        self._heard_at = self._loop.time()
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
            position, needed = self._handle_frames(data)
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
        else:
            self._buffer.keep(data[position:], needed)
        self._endpoint.end_batch()
        self._flush()

    def _handle_frames(self, data: memoryview) -> tuple[int, int]:
        """Handle all complete frames; gives where it stopped and how long the frame there is."""
        position = 0
        end = len(data)
        limit = self._endpoint.frame_max_length
        while end - position >= _FRAME_HEAD and not self._paused:
            length, mark = LENGTH_AND_MARK.unpack_from(data, position)
            if not 4 <= length <= limit:
                check_length(length, limit)
            start = position + 4
            following = start + length
            if following > end:
                return position, 4 + length
            self._handle_frame(data, start, mark, following)
            position = following
            if self._transport is None:
                return end, 0
            if len(self._out) > _FLUSH_PIECES:
                self._endpoint.end_batch()
                self._flush()
        if end - position >= LENGTH.size and not self._paused:
            # Judged at once: a peer that sends a wrong length may send nothing more.
            check_length(LENGTH.unpack_from(data, position)[0], limit)
        return position, _FRAME_HEAD

    def _handle_frame(self, data: memoryview, start: int, mark: int, end: int) -> None:
        """Handle one frame, whose mark lies at ``start``."""
        header_end = start + 4 + (mark & MAX_HEADER_LENGTH)
        # A JSON header of a served code, in order: all others, broken ones included, take the longer way.
        header = data[start + 4 : header_end]
        route = self._routes_by_prefix.get(bytes(header[:12])) if header_end <= end and not mark >> 24 else None
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
        body = data[header_end:end]
        command.body = bytes(body) if route.runs_later else body
        self._process(route, command)

    def _handle_other(self, frame: memoryview) -> None:
        """A response, an unknown code, a binary header, or one with errors."""
        serialize_type, header, body = split_frame(frame)
        command = decode_frame(frame)
        if command.is_response:
            self._handle_response(command)
            return
        route = self._routes.get(command.code)
        if route is None:
            text = f" request type {command.code} not supported"
            self._answer(command, response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        try:
            command = route.decode(serialize_type, header)
        except HeaderFieldError as error:
            self._answer(command, response(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        command.body = bytes(body) if route.runs_later else body
        self._process(route, command)

    def _handle_response(self, command: Command) -> None:
        future = self._pending.pop(command.opaque, None)
        if future is None or future.done():
            log.debug("%s answered %d, which nobody waits for", self.remote_address, command.opaque)
            return
        command.body = bytes(command.body)
        future.set_result(command)

    def _process(self, route: Route, command: Command) -> None:
        try:
            answer = route.process(self, command)
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection goes on
            answer = error_answer(route.code, error)
        if type(answer) is bytes:
            if not command.flag & FLAG_ONEWAY:
                self._out.append(answer)
        elif isinstance(answer, asyncio.Future):
            self._one_more_open()
            answer.add_done_callback(partial(self._answer_done, command))
        elif isinstance(answer, Awaitable):
            if route.runs_later:
                self.answer_later(command, answer)
            else:
                self._open(command, answer, self._answer_when_done(command, answer))
        elif answer is not None:
            self._answer(command, answer)

    def answer_later(self, command: Command, waiting: Awaitable[Any]) -> None:
        """Answer a request with what ``waiting`` gives, when it is its turn; its error is answered as a handler's.

        A coroutine does not run before.
        """
        self._open(command, waiting, self._answer_in_turn(command, waiting))

    def _one_more_open(self) -> None:
        self._open_requests += 1
        if self._open_requests >= _MOST_OPEN and self._endpoint.throttles and not self._paused:
            self._stop_hearing()

    def _answer_done(self, command: Command, future: asyncio.Future[Any]) -> None:
        """Answer with what a future got: as ``_answer_when_done``, without the task that each send would need."""
        self._open_requests -= 1
        if not future.cancelled():
            error = future.exception()
            answer = future.result() if error is None else error_answer(command.code, error)
            if answer is not None:
                self._answer(command, answer)
                self._flush_soon()
        if self._paused:
            self._hear_again()

    def _open(self, command: Command, waiting: Awaitable[Any], answering: Coroutine[Any, Any, None]) -> None:
        self._one_more_open()
        task = self._endpoint.tasks.start(answering, f"request-{command.code}")
        task.add_done_callback(partial(self._close_request, waiting))

    def _close_request(self, waiting: Awaitable[Any], _task: asyncio.Task[None]) -> None:
        if inspect.iscoroutine(waiting):
            # One whose turn did not come, or whose task ended before it began; no matter for one that has ended.
            waiting.close()
        self._open_requests -= 1
        if self._paused:
            self._hear_again()

    async def _answer_in_turn(self, command: Command, waiting: Awaitable[Any]) -> None:
        async with self._turns:
            await self._caught_up.wait()
            await self._answer_when_done(command, waiting)

    async def _answer_when_done(self, command: Command, waiting: Awaitable[Any]) -> None:
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - logged and answered; the connection goes on
            answer = error_answer(command.code, error)
        if answer is not None:
            self._answer(command, answer)
            self._flush_soon()

    # -- writing

    def _flush_soon(self) -> None:
        """Write when all that is ready now has been answered: what waited for one thing is answered by one write."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self._flush()

    def _answer(self, command: Command, answer: Any) -> None:
        if not command.flag & FLAG_ONEWAY:
            self._queue(command, answer)

    def _queue(self, command: Command, answer: Any) -> None:
        if isinstance(answer, bytes):
            self._out.append(answer)
            self._out_bytes += len(answer)
        elif isinstance(answer, list):
            self._out.extend(answer)
            self._out_bytes += sum(map(len, answer))
        else:
            frame = encode_answer(command, answer)
            self._out.append(frame)
            self._out_bytes += len(frame)
        if self._out_bytes > _FLUSH_BYTES:
            self._endpoint.end_batch()
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        self._out_bytes = 0
        self.write(out)

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send encoded frames; does nothing when the connection is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif sum(map(len, buffers)) <= _JOIN_LIMIT:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def reply(self, opaque: int, answer: Command) -> None:
        """Encode and send the answer to the request with that opaque."""
        answer.opaque = opaque
        answer.flag |= FLAG_RESPONSE
        self.write([encode_frame(answer)])

    def send_oneway(self, command: Command) -> bool:
        """Send a request that wants no answer; false when it was dropped: the peer is gone or too far behind."""
        if not self.is_open:
            return False
        command.opaque = next(self._endpoint.opaque) & _MAX_OPAQUE
        command.flag |= FLAG_ONEWAY
        try:
            self._push(command)
        except RemotingTooMuchRequestError as error:
            log.debug("request code %d was not sent: %s", command.code, error)
            return False
        return True

    def _push(self, command: Command) -> None:
        """Write a request unless the peer is too far behind to be sent more."""
        frame = encode_frame(command)
        if self.is_behind:
            limit = self._endpoint.limits.max_push_bytes
            if self._pushed_bytes + len(frame) > limit:
                raise RemotingTooMuchRequestError(
                    f"{self.remote_address} takes too slowly what it is sent: {self._pushed_bytes:,} bytes of requests "
                    f"wait beside its answers, {len(frame):,} more exceed the limit of {limit:,} "
                    "(maxPushBytesPerConnection)"
                )
            self._pushed_bytes += len(frame)
        self.write([frame])

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer.

        Raises:
            RemotingSendError: the connection was lost before the answer came, or the peer is too far behind.
            RemotingTimeoutError: no answer in time.
        """
        if self._transport is None or self._transport.is_closing():
            raise RemotingSendError(f"the connection to {self.remote_address} is closed")
        command.opaque = opaque = next(self._endpoint.opaque) & _MAX_OPAQUE
        future: asyncio.Future[Command] = self._loop.create_future()
        self._pending[opaque] = future
        try:
            self._push(command)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            text = f"no answer from {self.remote_address} to request code {command.code} within {timeout_s} s"
            raise RemotingTimeoutError(text) from None
        finally:
            self._pending.pop(opaque, None)

    @property
    def is_open(self) -> bool:
        """Whether writes still reach the peer."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self, reason: str) -> None:
        """Close after what was written has been sent; the reason goes to the log."""
        if self._transport is not None and not self._transport.is_closing():
            log.info("closing the connection from %s: %s", self.remote_address, reason)
            self._transport.close()

    def close_if_idle(self, now: float) -> None:
        """Close when the peer sent nothing for too long; drop when it took nothing of what waits for it.

        What waits holds memory, and files of the log that were deleted since.
        """
        if self._transport is None:
            return
        max_idle_s = self._endpoint.limits.max_idle_s
        waiting = self._transport.get_write_buffer_size()
        if not waiting or waiting < self._untaken:
            self._taken_at = now
        self._untaken = waiting
        if now - self._taken_at > max_idle_s:
            self.abort(
                f"it took none of the {waiting} bytes that wait for it within {max_idle_s:g} s "
                "(serverChannelMaxIdleTimeSeconds)"
            )
        elif not waiting and not self._paused and now - max(self.last_read, self._heard_at) > max_idle_s:
            self.close(f"nothing was received for {max_idle_s:g} s (serverChannelMaxIdleTimeSeconds)")

    def abort(self, reason: str) -> None:
        """Close at once; what was not sent is lost."""
        if self._transport is not None:
            log.info("dropping the connection from %s: %s", self.remote_address, reason)
            self._transport.abort()

    def _refuse(self, reason: str) -> None:
        """Answer a broken frame, whose opaque is unknown, and close: the next frame cannot be found."""
        log.warning("%s broke the protocol: %s", self.remote_address, reason)
        self._out.append(encode_frame(response(ResponseCode.SYSTEM_ERROR, reason)))
        self._endpoint.end_batch()
        self._flush()
        self.close(reason)
