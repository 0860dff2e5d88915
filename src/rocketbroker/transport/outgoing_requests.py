"""Requests from this side of a connection; answers arrive between the requests of the peer."""

import asyncio
import logging
import math

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError, RemotingTooMuchRequestError
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.frame_writer import FrameWriter

log = logging.getLogger(__name__)

#: Opaques are Java ints and wrap around after 2,147,483,647 requests.
MAX_OPAQUE = 0x7FFFFFFF

#: Reason to refuse a request from an event loop other than the connection's.
ANOTHER_LOOP = (
    "the client belongs to another event loop; make one in this loop, or use it in its own one by "
    "asyncio.run_coroutine_threadsafe"
)

_NOTHING = None, 0.0


class OutgoingRequests:
    """Number and send requests, and match answers to them.

    Args:
        peer: the connection.
        writer: sends the requests.
        endpoint: counter of opaques, limits, and the hook of requests.

    Attributes:
        was_answered: the peer has answered a request.
        pending: requests without an answer by opaque, each with its deadline.
    """

    def __init__(self, peer: Connection, writer: FrameWriter, endpoint: Endpoint) -> None:
        self._peer = peer
        self._writer = writer
        self._opaques = endpoint.opaque
        self._limit = endpoint.limits.max_push_bytes
        #: Called with each request before it is encoded.
        self.before_request = endpoint.hooks.before_request
        self._loop = asyncio.get_running_loop()
        self.was_answered = False
        self.pending: dict[int, tuple[asyncio.Future[Command], float]] = {}
        # One timer for all of them, since answers are expected: it runs at the earliest deadline it has seen.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        # Bytes written since the peer fell behind.
        self._pushed_bytes = 0

    def send_oneway(self, command: Command) -> bool:
        """Send a one-way request; return false if it was dropped because the peer is gone or too far behind."""
        if not self._writer.is_open:
            return False
        command.opaque = next(self._opaques) & MAX_OPAQUE
        command.flag |= FLAG_ONEWAY
        try:
            self._push(command)
        except RemotingTooMuchRequestError as error:
            log.debug("request code %d was not sent: %s", command.code, error)
            return False
        return True

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer.

        Raises:
            RemotingSendError: The connection was lost before the answer arrived, or the peer is too far behind.
            RemotingTimeoutError: No answer arrived in time.
        """
        address = self._peer.remote_address
        if not self._writer.is_open:
            raise RemotingSendError(f"the connection to {address} is closed")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise RemotingSendError(f"the request to {address} was not sent: {ANOTHER_LOOP}")
        command.opaque = opaque = next(self._opaques) & MAX_OPAQUE
        future: asyncio.Future[Command] = loop.create_future()
        deadline = loop.time() + timeout_s
        self.pending[opaque] = future, deadline
        try:
            self._push(command)
            if deadline < self._timer_at:
                self._expire_at(deadline, loop)
            return await future
        except TimeoutError:
            text = f"no answer from {address} to request code {command.code} within {round(timeout_s, 2):g} s"
            raise RemotingTimeoutError(text) from None
        finally:
            self.pending.pop(opaque, None)

    def _expire_at(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(deadline, self._expire, loop), deadline

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail the requests whose deadline has passed."""
        now = loop.time()
        self._timer, self._timer_at = None, math.inf
        for future, deadline in self.pending.values():
            if deadline <= now and not future.done():
                future.set_exception(TimeoutError())
        left = [deadline for _, deadline in self.pending.values() if deadline > now]
        if left:
            self._expire_at(min(left), loop)

    def _push(self, command: Command) -> None:
        """Write a request unless the peer is too far behind."""
        if self.before_request is not None:
            self.before_request(command)
        frame = encode_frame(command)
        if self._peer.is_behind:
            if self._pushed_bytes + len(frame) > self._limit:
                raise RemotingTooMuchRequestError(
                    f"{self._peer.remote_address} reads too slowly: {self._pushed_bytes:,} bytes of "
                    f"requests wait beside its answers, and {len(frame):,} more exceed the limit of {self._limit:,} "
                    "(maxPushBytesPerConnection)"
                )
            self._pushed_bytes += len(frame)
        self._writer.push(frame)

    def caught_up(self) -> None:
        """Reset the count: the peer has taken all queued bytes."""
        self._pushed_bytes = 0

    def answered(self, command: Command) -> None:
        """Complete the request that an answer belongs to."""
        future, _ = self.pending.pop(command.opaque, _NOTHING)
        if future is None or future.done():
            log.debug("%s answered %d, which nobody waits for", self._peer.remote_address, command.opaque)
            return
        self.was_answered = True
        command.body = bytes(command.body)
        future.set_result(command)

    def lost(self) -> None:
        """Fail all requests without an answer."""
        if self._timer is not None:
            self._timer.cancel()
        for future, _ in self.pending.values():
            if not future.done():
                future.set_exception(RemotingSendError(f"the connection to {self._peer.remote_address} was lost"))
        self.pending.clear()
