"""Free ports that no other test process of this machine takes in the time between the choice and the use."""

import contextlib
import itertools
import socket
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
FIRST, END = 20_000, 32_000  # below the system's ephemeral ports, which any connection may get
BLOCK = 200


def free_ports(*offsets: int) -> int:
    """Return a port P with P and each P + offset free, from the block that belongs to this process.

    Each call begins after the ports of the one before, so that a port that was just given up is not used again soon.
    """
    ports = _turns()
    for _ in range(-min((0, *offsets))):
        next(ports)
    for port in itertools.islice(ports, BLOCK):
        with contextlib.ExitStack() as held:
            try:
                for offset in (0, *offsets):
                    held.enter_context(socket.create_server((LOOPBACK, port + offset)))
            except OSError:
                continue
            for _ in range(max((0, *offsets))):
                next(ports)
            return port
    raise OSError(f"no free ports in the {BLOCK} of this process")


@cache
def _turns() -> "itertools.cycle[int]":
    """Return the ports of the block of this process in turn, without its margins, which offsets may reach."""
    first = _claim()
    return itertools.cycle(range(first + 10, first + BLOCK - 10))


def _claim() -> int:
    """Return the first port of a block; its socket says until this process ends that the block is taken."""
    for first in range(FIRST, END, BLOCK):
        with contextlib.suppress(OSError):
            socket.create_server((LOOPBACK, first), backlog=1).detach()
            return first
    raise OSError(f"no free block of ports between {FIRST} and {END}")
