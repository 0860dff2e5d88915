"""TLS handshakes that pass through a relay: bounded in time and number, though another server makes them.

The relay sees records, not what they hold, but their types tell enough (RFC 8446, 5.1). Whoever completes a handshake
speaks after the ServerHello, and the server answers that with a ChangeCipherSpec in TLS 1.2, and with application data:
in TLS 1.3 its tickets, in each version the settings of HTTP/2. The answer to a client that made anything up is an
alert. In TLS 1.3 it is encrypted and looks like application data, but is shorter.

A HelloRetryRequest is a ServerHello by its type, but nothing has been proved or paid for yet: the server then skips
data that was made up (4.2.10), and sends its certificate later. It is known by its random (4.1.3), as no order of
records tells it: a client may send its second hello before the request.

A client that closes after it spoke, such as a probe of a port, may have completed its handshake. The answer tells, and
comes all the same if the server learns of the end of the connection behind the last bytes.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rocketbroker.transport.handshake_limits import HandshakeLimits, Ticket
from rocketbroker.transport.tls_transport import HANDSHAKE_TIMEOUT_S

_HEAD_BYTES: Final = 5
_CHANGE_CIPHER_SPEC: Final = 20
_HANDSHAKE: Final = 22
_APPLICATION_DATA: Final = 23
# Of the first record: its head, and type, length and version of the ServerHello come before the random.
_RANDOM: Final = slice(11, 43)
_RANDOM_OF_RETRY: Final = hashlib.sha256(b"HelloRetryRequest").digest()
# Two bytes of an alert, its type, and 16 bytes that authenticate it.
_ENCRYPTED_ALERT_BYTES: Final = 19


class _Record(NamedTuple):
    type: int
    size: int


class _Records:
    """Records of one direction."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def begun(self, data: bytes) -> Iterator[_Record]:
        """Yield the records whose heads end in some bytes."""
        at = 0
        while at < len(data):
            if self._left:
                passed = min(self._left, len(data) - at)
                self._left -= passed
            else:
                passed = min(_HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + passed]
                if len(self._head) == _HEAD_BYTES:
                    self._left = int.from_bytes(self._head[3:])
                    yield _Record(self._head[0], self._left)
                    self._head = b""
            at += passed


class RelayedHandshake:
    """One handshake: it waits for its place, begins, and ends well, by its deadline, or with its connection.

    Args:
        limits: places of handshakes.
        key: key of the client's address.
        begin: begins to relay; called once there is a place, maybe at once.
        refuse: called with the reason to close the connection.
    """

    def __init__(
        self, limits: HandshakeLimits, key: bytes, begin: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        self._relay, self._refuse = begin, refuse
        self._client, self._server = _Records(), _Records()
        self._answer = b""
        self._handshake_records = 0
        self._client_spoke = False
        self._ticket: Ticket | None = limits.ask(key, self._begin)
        self._deadline: asyncio.TimerHandle | None = None
        if self._ticket is None:
            refuse("too many handshakes wait, or too many of its address have failed")
        elif self._ticket.is_running:
            self._begin()
        else:
            self._wait(f"it waited {HANDSHAKE_TIMEOUT_S:g} s for the place of a handshake")

    def _begin(self) -> None:
        self._wait(f"its handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s")
        self._relay()

    def _wait(self, reason: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        self.end(failed=True)
        self._refuse(reason)

    def client_sent(self, data: bytes) -> None:
        """Note what the client sent."""
        for record in self._client.begun(data):
            # Not before the ServerHello: what came with the first bytes says nothing about the handshake.
            if record.type in {_HANDSHAKE, _APPLICATION_DATA} and self._has_server_hello:
                self._client_spoke = True

    def server_sent(self, data: bytes) -> None:
        """Note what the server sent."""
        if len(self._answer) < _RANDOM.stop:
            self._answer += data[: _RANDOM.stop - len(self._answer)]
        for record in self._server.begun(data):
            if record.type == _HANDSHAKE:
                self._handshake_records += 1
            elif self._client_spoke and (
                record.type == _CHANGE_CIPHER_SPEC
                or (record.type == _APPLICATION_DATA and record.size > _ENCRYPTED_ALERT_BYTES)
            ):
                self.end(failed=False)

    @property
    def _has_server_hello(self) -> bool:
        """True once the server has sent a ServerHello that is no HelloRetryRequest."""
        is_retry = self._answer[_RANDOM] == _RANDOM_OF_RETRY
        return len(self._answer) == _RANDOM.stop and self._handshake_records > is_retry

    @property
    def is_running(self) -> bool:
        """True from its begin until its end."""
        return self._ticket is not None and self._ticket.is_running

    @property
    def is_answer_due(self) -> bool:
        """True if the client has spoken after the ServerHello, and the server has not answered that yet."""
        return self.is_running and self._client_spoke

    @property
    def is_over(self) -> bool:
        """True once the place was given back."""
        return self._ticket is None

    def end(self, *, failed: bool) -> None:
        """Give the place back, once: the handshake is over, or its connection is."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.end(failed=failed)
