"""Bounds of handshakes, by counting."""

from itertools import pairwise

import pytest

from rocketbroker.transport.failed_connections import FREE, FailedConnections
from rocketbroker.transport.handshake_limits import (
    MAX_RUNNING,
    MAX_WAITING,
    MAX_WAITING_OF_ADDRESS,
    PACE_S,
    HandshakeLimits,
    Ticket,
)
from tests.support.waiting import turns

A, B = b"\x0a\0\0\1", b"\x0a\0\0\2"


class Port:
    """A port whose handshakes run until the test ends them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.limits = HandshakeLimits(FailedConnections(lambda: self.now), lambda: self.now)
        self.running: list[Ticket] = []
        self.refused = 0

    def connect(self, key: bytes) -> Ticket | None:
        tickets: list[Ticket] = []
        ticket = self.limits.ask(key, lambda: self.running.append(tickets[0]))
        if ticket is None:
            self.refused += 1
            return None
        tickets.append(ticket)
        if ticket.is_running:
            self.running.append(ticket)
        return ticket

    def end(self, *, failed: bool) -> None:
        running, self.running = self.running, []
        for each in running:
            each.end(failed=failed)


@pytest.fixture
def port() -> Port:
    return Port()


async def test_an_address_leaves_as_many_places_as_it_takes(port: Port):
    for _ in range(MAX_RUNNING):
        port.connect(A)
    assert len(port.running) == MAX_RUNNING // 2
    for _ in range(MAX_RUNNING):
        port.connect(B)
    assert len(port.running) == MAX_RUNNING * 3 // 4
    assert port.limits.waiting == 2 * MAX_WAITING_OF_ADDRESS
    assert port.refused == 2 * MAX_RUNNING - len(port.running) - port.limits.waiting


async def test_all_addresses_together_are_bounded(port: Port):
    for number in range(20_000):
        port.connect(b"%05d" % number)
    assert (len(port.running), port.limits.waiting) == (MAX_RUNNING, MAX_WAITING)
    assert port.refused == 20_000 - MAX_RUNNING - MAX_WAITING
    while port.running or port.limits.waiting:
        port.end(failed=False)
        await turns(3)
    assert port.limits.begun == MAX_RUNNING + MAX_WAITING
    assert (port.limits._running_of, port.limits._queues) == ({}, {})


async def test_a_thousand_failures_a_second_cost_the_handshakes_of_ten(port: Port):
    begun = []
    for _ in range(5):
        for _ in range(1_000):
            port.connect(A)
            port.end(failed=True)
            port.now += 0.001
            # As its timer does.
            port.limits._begin_waiting()
            port.end(failed=True)
        begun.append(port.limits.begun)
        assert port.limits.waiting <= MAX_WAITING_OF_ADDRESS
    for before, after in pairwise(begun):
        assert after - before <= 1 / PACE_S + 2
    # Another address is served at once.
    ticket = port.connect(B)
    assert ticket is not None
    assert ticket.is_running


async def test_time_takes_failures_away(port: Port):
    for _ in range(FREE + 100):
        port.connect(A)
        port.end(failed=True)
    assert not port.running
    assert port.limits.waiting > 0
    port.now += 5
    for _ in range(MAX_WAITING_OF_ADDRESS):
        port.limits._begin_waiting()
        port.end(failed=False)
    assert port.limits.waiting == 0
    assert [port.connect(A) is not None for _ in range(20)] == [True] * 20
    assert len(port.running) == 20


async def test_successes_are_not_bounded_in_rate(port: Port):
    for _ in range(5_000):
        port.connect(A)
        port.end(failed=False)
    assert (port.limits.begun, port.refused) == (5_000, 0)


async def test_what_goes_away_while_it_waits_does_not_begin(port: Port):
    tickets = [port.connect(A) for _ in range(MAX_RUNNING // 2 + 3)]
    gone = tickets[-2]
    assert gone is not None
    gone.end(failed=False)
    gone.end(failed=False)
    assert port.limits.waiting == 2
    port.end(failed=False)
    await turns(5)
    assert port.running == [tickets[-3], tickets[-1]]
