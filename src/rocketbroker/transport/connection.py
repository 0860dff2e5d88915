"""One TCP connection that carries requests and answers in both directions (NettyRemotingAbstract).

One read event is one batch: ``FrameReader`` handles all complete frames, ``FrameWriter`` sends their answers with one
write. ``Responder`` sends the answers that must wait.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from rocketbroker.codec.message.message_id import host_bytes, join_address
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import address_key
from rocketbroker.common.errors import RemoteProtocolError
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_reader import FrameReader
from rocketbroker.transport.frame_writer import FrameWriter
from rocketbroker.transport.outgoing_requests import OutgoingRequests
from rocketbroker.transport.peer_limits import SHARED_SIZE, HeldMemory, PeerProgress, ReceiveBuffer
from rocketbroker.transport.responder import Responder

log = logging.getLogger(__name__)

# Smaller incomplete frames are not accounted for.
_SMALL_REST = 4 * 1024


class RemotingConnection(asyncio.BufferedProtocol):
    """Implementation of ``codec.remoting.handler.Connection`` over an asyncio transport."""

    remote_address = "?"
    remote_host = bytes(8)
    audience = Audience.CLIENT
    share: bytes | None = None
    last_read = 0.0
    waited_s = 0.0
    _has_failed = False

    def __init__(self, endpoint: Endpoint, writer: FrameWriter | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._buffer = ReceiveBuffer(endpoint.shared_buffer)
        self._progress = PeerProgress(endpoint.limits)
        self._heard_at = 0.0
        # Bytes read while reading is paused, and the time since which they wait for other answers; 0 if they wait for
        # the peer or for a turn.
        self._unread: bytes = b""
        self._unread_since = 0.0
        self.is_behind = False
        # No request is handled any more.
        self._is_ending = False
        self._writer = writer or FrameWriter(self._loop)
        self.memory = HeldMemory(self.held_bytes, endpoint.hold, self._loop.time)
        self._responder = Responder(self, self._writer, endpoint, self.memory)
        self._outgoing = OutgoingRequests(self, self._writer, endpoint)
        self._reader = FrameReader(self, endpoint, self._writer, self._responder, self._outgoing)
        # Methods of ``codec.remoting.handler.Connection`` that belong to one part.
        self.answer, self.drop_waiting = self._responder.answer, self._responder.drop_waiting
        self.send_oneway, self.invoke = self._outgoing.send_oneway, self._outgoing.invoke
        self.flush = self._writer.flush

    # -- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or abort its connection if there are too many."""
        # uvloop's transports do not derive from asyncio.Transport.
        self._writer.transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.remote_address = join_address(*address[:2])
            # Show the IPv4 peer of an IPv6 socket as IPv4.
            self.remote_host = host_bytes(address[0].removeprefix("::ffff:"), address[1])
        if not self._endpoint.accept(self, transport):
            transport.abort()
            return
        self.admit()
        limits, sock = self._endpoint.limits, transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if limits.send_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
            if limits.receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)
        high, low = limits.write_high_water, limits.write_low_water
        transport.set_write_buffer_limits(high=high, low=min(low, high) if low else None)
        self.last_read = self._heard_at = self._progress.taken_at = self._loop.time()

    def secured(self, transport: asyncio.Transport) -> None:
        """Write to an encrypted transport from now on."""
        self._writer.transport = transport

    def admit(self) -> None:
        """Choose the peer's audience and its routes, by its address."""
        if self._writer.transport is not None:
            self.audience, table = self._endpoint.admitted(self._writer.transport)
            self.share = address_key(self.remote_host) if self.audience is Audience.CLIENT else None
            self._reader.use(table)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the memory and fail the requests of this side."""
        self._writer.transport = None
        self._release()
        self._outgoing.lost()
        self._endpoint.gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the frames of one read event as one batch."""
        self.last_read = self._loop.time()
        data = self._buffer.received(nbytes)
        if self._unread:
            # One more read event may follow pause_reading.
            self._unread += bytes(data)
            self._buffer.clear()
            return
        is_filled = len(data) >= SHARED_SIZE
        if self._handle_batch(data) and is_filled and self._endpoint.throttles:
            self._end_turn()

    def _end_turn(self) -> None:
        """Let other connections go first: there may be more to read.

        libuv reads a connection that fills its buffer 32 times before it looks at any other, and each of these reads
        has the time of a turn.
        """
        transport = self._writer.transport
        if transport is not None and not transport.is_closing() and not self._reader.is_stopped:
            self._reader.is_stopped = self._reader.turn_is_over = True
            transport.pause_reading()
            self._endpoint.read_later(self)

    def pause_writing(self) -> None:
        """Stop reading from a slow peer until it has taken its answers."""
        if self._endpoint.throttles:
            self.is_behind = True
            self._responder.stop()
            self.stop_reading()
        if self.memory.is_settled:
            self.memory.is_settled = False
            self._loop.call_soon(self.memory.settle)

    def resume_writing(self) -> None:
        """Read again: the peer has taken its answers."""
        if self.is_behind:
            self.is_behind = False
            self._outgoing.caught_up()
            self._progress.taken_at = self._loop.time()
            self._responder.resume()
            self.read_again()
            self.memory.settle(progressed=True)

    # -- reading

    def _handle_batch(self, data: memoryview) -> bool:
        """Handle the complete frames; return true if there was one."""
        reader = self._reader
        try:
            position, needed = reader.handle(data)
        except RemoteProtocolError as error:
            self._refuse(str(error))
            position = needed = len(data)
        if position == len(data):
            self._buffer.clear()
        elif reader.is_stopped:
            self._unread = bytes(data[position:])
            if not self.waited_s:
                # The time for which it waits for other connections does not count, like the time in the kernel.
                self._unread_since = 0.0 if self.is_behind or reader.turn_is_over else self._loop.time()
            self._buffer.clear()
            if reader.turn_is_over and self._writer.transport is not None:
                self._writer.transport.pause_reading()
                self._endpoint.read_later(self)
            self.memory.is_settled = False
        else:
            if position or not self._buffer.held:
                # The time in which reading was paused does not count as the peer's delay.
                self._progress.frame_began_at = max(self.last_read, self._heard_at)
            self._buffer.keep(data[position:], needed)
            if len(data) - position > _SMALL_REST:
                self.memory.is_settled = False
        self._endpoint.end_batch()
        if reader.answered:
            self._endpoint.meter.add_batch(reader.answered, self._loop.time() - self.last_read, self.remote_address)
            reader.answered = []
        self._writer.flush()
        if not self.memory.is_settled:
            self.memory.settle(progressed=position > 0)
        return position > 0

    def stop_reading(self) -> None:
        """Pause reading: the peer takes its answers slowly, or has too many pending requests."""
        if self._writer.transport is not None and not self._reader.is_stopped:
            self._reader.is_stopped = True
            self._writer.transport.pause_reading()

    def read_again(self) -> None:
        """Handle what was read before the pause and resume reading, unless a reason for the pause remains."""
        if not self._reader.is_stopped or self.is_behind or self._responder.is_full or self._is_ending:
            return
        self._reader.is_stopped = self._reader.turn_is_over = False
        self._heard_at = self._progress.frame_began_at = self._loop.time()
        unread, self._unread = self._unread, b""
        if unread:
            if self._unread_since:
                self.waited_s = self._loop.time() - self._unread_since
            self._handle_batch(memoryview(unread))
            self.waited_s = 0.0
        if not self._reader.is_stopped and self._writer.transport is not None:
            self._writer.transport.resume_reading()

    def _refuse(self, reason: str) -> None:
        """Answer a broken frame and close: the next frame cannot be found."""
        log.warning("%s broke the protocol: %s", self.remote_address, reason)
        self.note_failure()
        self._writer.frames.append(encode_frame(response(ResponseCode.SYSTEM_ERROR, reason)))
        self._endpoint.end_batch()
        self._writer.flush()
        self.close(reason)

    # -- memory and end

    @property
    def is_open(self) -> bool:
        """True if writes still reach the peer."""
        return self._writer.is_open

    @property
    def is_paused(self) -> bool:
        """True while nothing is read: the peer is behind, has too many open requests, or has used up its turn."""
        return self._reader.is_stopped

    @property
    def was_answered(self) -> bool:
        """True once the peer has answered a request."""
        return self._outgoing.was_answered

    @property
    def open_requests(self) -> int:
        """Number of requests of the peer without an answer."""
        return self._responder.open_requests

    @property
    def awaited_answers(self) -> int:
        """Number of requests of this side without an answer."""
        return len(self._outgoing.pending)

    @property
    def before_request(self) -> Callable[[Command], None] | None:
        """Called with each request of this side before it is encoded."""
        return self._outgoing.before_request

    @before_request.setter
    def before_request(self, call: Callable[[Command], None] | None) -> None:
        self._outgoing.before_request = call

    def held_bytes(self) -> int:
        """Return the memory that is kept until a later event: incomplete frames, open requests, unsent answers."""
        writer = self._writer
        held = self._buffer.held + len(self._unread) + self._responder.body_bytes
        return held + writer.unsent_bytes + writer.undecrypted_bytes

    def _release(self) -> None:
        """Free the held memory, except that of running requests."""
        self._unread = b""
        self._buffer.clear()
        self._responder.drop_waiting()
        self.memory.settle()

    def drop(self, reason: str) -> None:
        """Close at once and free the held memory; unsent answers are lost."""
        transport, self._writer.transport = self._writer.transport, None
        if transport is not None:
            log.warning("dropping the connection from %s: %s", self.remote_address, reason)
            transport.abort()
        self._release()

    def close(self, reason: str) -> None:
        """Send the written answers, then close; log the reason."""
        transport = self._writer.transport
        if transport is not None and not transport.is_closing():
            log.info("closing the connection from %s: %s", self.remote_address, reason)
            transport.close()

    def close_after_batch(self, reason: str) -> None:
        """Handle no further request, and close once the answers of this read event are written; log the reason."""
        self.stop_reading()
        self._is_ending = True
        self._loop.call_soon(self.close, reason)

    def note_failure(self) -> None:
        """Count the connection as failed, once: its address gets few new ones while too many of them fail."""
        if not self._has_failed:
            self._has_failed = True
            self._endpoint.failed.add(address_key(self.remote_host))

    def check(self, now: float) -> None:
        """Drop a peer that is late with a frame or with its answers; close an idle one."""
        if self._writer.transport is None:
            return
        waiting = self._writer.unsent_bytes
        if waiting or not self.memory.is_settled:
            self.memory.settle()
        # The rest of a frame cannot arrive while reading is paused.
        is_paused = self._reader.is_stopped
        reason = self._progress.lateness(now, waiting, 0 if is_paused else self._buffer.received_bytes)
        if reason:
            self.drop(reason)
            return
        max_idle_s = self._endpoint.limits.max_idle_s
        is_idle = not waiting and not is_paused and now - max(self.last_read, self._heard_at) > max_idle_s
        if is_idle and self._endpoint.throttles:
            self.close(f"nothing was received for {max_idle_s:g} s (serverChannelMaxIdleTimeSeconds)")
