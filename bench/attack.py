"""Connections that fail, at a steady rate: a process of its own beside a client that is served.

    python -m bench.attack HOST:PORT [RATE]

It runs until SIGTERM, and then prints its figures as a line of JSON. The connections send in turn a message without a
signature, one with a wrong signature, a whole ClientHello and the first half of one. For the whole one the server signs
and sends its certificate, the costly part of a handshake, which the attacker never goes on with. Each connection is
reset once it has an answer, and after a second at most: a reset leaves no port in TIME_WAIT, of which a minute of
attack would take all. The attacker has an address of its own, 127.0.0.2. It uses plain sockets, so that it takes little
of a CPU from those it measures.
"""

import json
import selectors
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from bench.harness import ROOT, BenchError
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner

#: Connections begun in a second.
RATE: Final = 1_000
_SOURCE: Final = "127.0.0.2"
_HOLD_S: Final = 1.0
_TICK_S: Final = 0.005
# Those that a slow server keeps: no more are begun until some have ended.
_MOST_OPEN: Final = 4_000
_STOP_LIMIT: Final = 10
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass
class Figures:
    """Figures of an attack.

    Attributes:
        begun: connections that were begun.
        refused: those that the server or its kernel did not accept.
        answered: those that got an answer, or the server's part of a handshake.
        closed: those that the server closed.
        seconds: length of the attack.
        cpu: CPU time of the attacker, in seconds.
    """

    begun: int = 0
    refused: int = 0
    answered: int = 0
    closed: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    def line(self) -> str:
        """Return the figures as a line for people."""
        return (
            f"attack: {self.begun / max(self.seconds, 1e-9):,.0f} connections a second for {self.seconds:.0f} s, "
            f"{self.answered:,} answered, {self.closed:,} closed by the server, {self.refused:,} not accepted; "
            f"{self.cpu / max(self.seconds, 1e-9):.2f} of a CPU"
        )


def payloads() -> list[bytes]:
    """Return what the connections send, in turn: no signature, a wrong one, a ClientHello, half of one."""
    fields = {"a": "PG", "b": "Sync64", "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    unsigned, wrong = (request(RequestCode.SEND_MESSAGE_V2, dict(fields), bytes(128)) for _ in range(2))
    RequestSigner("bench-user", "wrong").sign(wrong)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        hello = outgoing.read()
    return [encode_frame(unsigned), encode_frame(wrong), hello, hello[: len(hello) // 2]]


class Attacker:
    """Begins connections at a rate, and ends each within a second.

    Args:
        address: ``host:port`` of the server.
        rate: connections a second.
    """

    def __init__(self, address: str, rate: int = RATE) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._rate = rate
        self._payloads = payloads()
        self._selector = selectors.DefaultSelector()
        # With the time of their end, the earliest first.
        self._open: deque[tuple[float, socket.socket]] = deque()
        self.figures = Figures()
        self.is_stopped = False

    def run(self) -> None:
        """Attack until ``is_stopped``."""
        began, cpu = time.monotonic(), time.process_time()
        while not self.is_stopped:
            now = time.monotonic()
            while self._open and (self._open[0][0] <= now or self._open[0][1].fileno() < 0):
                self._end(self._open.popleft()[1])
            due = int((now - began) * self._rate) - self.figures.begun
            for _ in range(min(due, _MOST_OPEN - len(self._open))):
                self._begin(now + _HOLD_S)
            for key, _ in self._selector.select(_TICK_S):
                self._go_on(key)
        for _, sock in self._open:
            self._end(sock)
        self._selector.close()
        self.figures.seconds, self.figures.cpu = time.monotonic() - began, time.process_time() - cpu

    def _begin(self, until: float) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.setblocking(False)
        sock.bind((_SOURCE, 0))
        sock.connect_ex(self._address)
        self._open.append((until, sock))
        self._selector.register(sock, selectors.EVENT_WRITE, self._payloads[self.figures.begun % len(self._payloads)])
        self.figures.begun += 1

    def _go_on(self, key: selectors.SelectorKey) -> None:
        sock: socket.socket = key.fileobj  # type: ignore[assignment]
        try:
            if key.data is not None:
                sock.send(key.data)
                self._selector.modify(sock, selectors.EVENT_READ)
                return
            if sock.recv(4_096):
                self.figures.answered += 1
            else:
                self.figures.closed += 1
        except ConnectionResetError:
            self.figures.closed += 1
        except OSError:
            self.figures.refused += 1
        self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._selector.unregister(sock)
            sock.close()


@contextmanager
def attacked(address: str) -> Iterator[None]:
    """Attack a server from a process of its own, and print the figures at the end.

    Raises:
        BenchError: The attacker failed.
    """
    command = [sys.executable, "-m", "bench.attack", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it begins
        try:
            yield
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=_STOP_LIMIT)
    try:
        print(Figures(**json.loads(out)).line(), flush=True)
    except ValueError:
        raise BenchError(f"the attacker ended with {process.returncode} and without figures: {out!r}") from None


def main() -> None:
    """Attack the address in the command line."""
    attacker = Attacker(sys.argv[1], *map(int, sys.argv[2:]))
    signal.signal(signal.SIGTERM, lambda _number, _frame: setattr(attacker, "is_stopped", True))
    print("begins", flush=True)
    attacker.run()
    print(json.dumps(asdict(attacker.figures)))


if __name__ == "__main__":
    main()
