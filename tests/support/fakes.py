"""Stand-ins for what unit tests must steer: time and connections."""

from collections.abc import Callable
from typing import Any

from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.handler import Answer, Audience
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.address_shares import address_key


class FakeClock:
    """A clock that moves only by ``advance``."""

    def __init__(self, time_ms: int = 1_795_255_000_000) -> None:
        self._time_ms = time_ms
        self._start_ms = time_ms

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic(self) -> float:
        return (self._time_ms - self._start_ms) / 1000 + 1.0

    def advance(self, seconds: float) -> None:
        self._time_ms += round(seconds * 1000)


class FakeConnection:
    """A connection that records all that is sent over it."""

    def __init__(self, remote_address: str = "127.0.0.1:50000", audience: Audience = Audience.ADMINISTRATION) -> None:
        host, _, port = remote_address.rpartition(":")
        self.remote_address = remote_address
        self.remote_host = host_bytes(host, int(port) % 65_536)
        self.audience = audience
        self.share = address_key(self.remote_host) if audience is Audience.CLIENT else None
        self.is_open = True
        self.is_behind = False
        self.last_read = 0.0
        self.waited_s = 0.0
        self.sent: list[Command] = []
        self.answers: list[tuple[Command, Any]] = []
        self._collected: list[tuple[Command, Any]] = []
        self.writes = 0
        self.close_reason: str | None = None
        self.failures = 0

    def answer(self, command: Command, make: Callable[[], Answer]) -> None:
        self._collected.append((command, make()))

    def flush(self) -> None:
        self.writes += 1
        self.answers += self._collected
        self._collected.clear()

    def send_oneway(self, command: Command) -> bool:
        self.sent.append(command)
        return True

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        self.is_open = False
        self.close_reason = reason

    def close_after_batch(self, reason: str) -> None:
        self.close(reason)

    def note_failure(self) -> None:
        self.failures += 1


class FakeClient(FakeConnection):
    """A client that gives each request one answer or error, and records the requests and their timeouts."""

    def __init__(self, answer: Command | Exception, remote_address: str = "127.0.0.1:50000") -> None:
        super().__init__(remote_address)
        self._reply = answer
        self.asked: list[tuple[Command, float]] = []

    async def invoke(self, command: Command, timeout_s: float) -> Command:
        self.asked.append((command, timeout_s))
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply
