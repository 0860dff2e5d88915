"""Longest time that the event loop of a server keeps a request waiting, by a process that asks all the time."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from bench.measure import loop_seconds, percentile
from tests.support.raw_client import RawClient

_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits for small answers, in seconds.

    Attributes:
        p50: the median, by the wall clock.
        p99: the 99th percentile.
        longest: the longest.
        held: the most CPU time that the event loop's thread used during one of them. It counts only the server's own
            work, and not the time for which a busy machine did not run it.
    """

    p50: float
    p99: float
    longest: float
    held: float


class LoopProbe:
    """The probing process; ``take`` returns what it has measured since the last call."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def take(self) -> Waits:
        """Return the waits since the last call."""
        self._pipe.send("take")
        waits, held = self._pipe.recv()
        return Waits(percentile(waits, 0.5), percentile(waits, 0.99), max(waits), max(held))


@contextmanager
def probing(address: str, pid: int, frame: bytes) -> Iterator[LoopProbe]:
    """Ask a server with this request, again and again, 1 ms after each answer."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_probe, args=(address, pid, frame, theirs))
    process.start()
    theirs.close()
    try:
        yield LoopProbe(ours)
    finally:
        ours.close()
        process.join()


def _probe(address: str, pid: int, frame: bytes, pipe: Connection) -> None:
    waits: list[float] = []
    held: list[float] = []
    with RawClient(address) as client:
        while True:
            cpu, begun = loop_seconds(pid), time.monotonic()
            client.send(frame)
            client.read()
            waits.append(time.monotonic() - begun)
            held.append(loop_seconds(pid) - cpu)
            if pipe.poll(_PAUSE_S):
                try:
                    pipe.recv()
                except EOFError:
                    return
                pipe.send((waits, held))
                waits, held = [], []
