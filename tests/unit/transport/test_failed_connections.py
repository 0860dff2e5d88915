"""Failing addresses get few new connections, and nobody else notices."""

import asyncio
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.common import address_debts
from rocketbroker.transport.failed_connections import (
    BURST,
    FREE,
    LEAK,
    MOST,
    PACE,
    FailedConnections,
    admitting,
    peer_key,
)

ATTACKER, NEIGHBOUR = ("10.0.0.1", 40_000), ("10.0.0.2", 40_000)


class Port:
    """A port whose peers fail as soon as they are served, or do not."""

    def __init__(self) -> None:
        self.now = 100.0
        self.failed = FailedConnections(lambda: self.now)

    def fail(self, peer: tuple[str, int] = ATTACKER) -> bool:
        admitted = self.failed.admits(peer)
        if admitted:
            self.failed.add(peer_key(peer))
        return admitted

    def attack(self, seconds: float, rate: int = 1_000) -> int:
        """Return how many of the connections were served."""
        served = 0
        for _ in range(round(seconds * rate)):
            self.now += 1 / rate
            served += self.fail()
        return served


@pytest.fixture
def port() -> Port:
    return Port()


def test_a_thousand_failures_a_second_are_served_at_the_pace(port: Port):
    port.attack(1)
    for _ in range(5):
        assert port.attack(1) == pytest.approx(PACE, abs=2)
    assert port.failed.rejected == 6_000 - port.failed.count


def test_few_failures_cost_an_address_nothing(port: Port):
    assert [port.fail() for _ in range(FREE)] == [True] * FREE
    for _ in range(round(60 * LEAK)):
        port.now += 1 / LEAK
        assert port.fail()
    assert port.failed.rejected == 0


def test_peers_that_do_not_fail_are_not_counted(port: Port):
    port.fail()
    assert all(port.failed.admits(NEIGHBOUR) for _ in range(10_000))
    assert (port.failed.count, port.failed.rejected) == (1, 0)


def test_an_address_that_stops_failing_is_served_within_seconds(port: Port):
    port.attack(60)
    assert not all(port.failed.admits(ATTACKER) for _ in range(100))
    port.now += (MOST - FREE) / LEAK
    assert all(port.failed.admits(ATTACKER) for _ in range(1_000))


def test_one_peer_in_a_loop_of_errors_keeps_nobody_out(port: Port):
    assert port.attack(30, rate=80) == 30 * 80
    assert port.failed.is_failing(peer_key(ATTACKER))
    assert port.failed.admits(ATTACKER)


def test_a_good_peer_at_the_address_of_an_attack_gets_in(port: Port):
    port.attack(2)
    chance = random.Random(1)
    served = 0
    for _ in range(100):
        # It comes at any time between two of the attack.
        port.attack(chance.uniform(0.01, 0.2))
        port.now += chance.uniform(0, 0.001)
        served += port.failed.admits(ATTACKER)
    assert served == pytest.approx(100 * PACE / 1_000, rel=0.5)
    # After a pause of the attack some at once.
    port.now += 1
    assert [port.failed.admits(ATTACKER) for _ in range(2 * BURST)].count(True) == BURST


def test_ipv6_addresses_count_by_network(port: Port):
    for number in range(1_000):
        port.fail((f"2001:db8::{number:x}", 40_000))
    assert port.failed.rejected == 1_000 - port.failed.count
    assert not port.failed.admits(("2001:db8::ffff", 40_000))
    assert port.failed.admits(("2001:db8:0:1::1", 40_000))
    assert peer_key(("::ffff:10.0.0.1", 1)) == peer_key(ATTACKER)


def test_memory_of_addresses_is_bounded(port: Port, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address_debts, "MAX_ADDRESSES", 10)
    for number in range(1_000):
        port.attack(0.01)
        port.fail((f"10.1.{number // 250}.{number % 250}", 40_000))
    assert len(port.failed._failures) == 10
    # It is remembered, however many come after it.
    assert port.failed.is_failing(peer_key(ATTACKER))


def test_one_line_in_ten_seconds(port: Port, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        port.attack(25)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all("connection from 10.0.0.1:40000 closed unread" in line for line in lines)
    assert sum(int(line.rpartition(": ")[2]) for line in lines) == pytest.approx(port.failed.rejected, rel=0.3)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.1, 3.0])), max_size=60
    ),
    st.integers(1, 200),
)
def test_what_others_do_changes_nothing_for_an_address(events: list[tuple[int, bool, float]], times: int):
    """Each address gets the answers that it would get alone."""

    def answers(of: int | None) -> list[tuple[int, bool]]:
        port, given = Port(), []
        for host, fails, pause in events:
            port.now += pause
            if of is not None and host != of:
                continue
            peer = (f"10.0.0.{host}", 40_000)
            given += [(host, port.fail(peer) if fails else port.failed.admits(peer)) for _ in range(times)]
        return given

    together = answers(None)
    for host in range(5):
        assert [each for each in together if each[0] == host] == answers(host)


class Greeter(asyncio.Protocol):
    """Sends a byte to whoever is served."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(b"!")  # type: ignore[attr-defined]
        transport.close()


async def test_a_connection_that_is_not_admitted_ends_before_a_protocol_is_made():
    # The time stands still: a slow machine serves no more of them.
    failed, made = FailedConnections(lambda: 100.0), []

    def make() -> Greeter:
        made.append(Greeter())
        return made[-1]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(admitting(failed, make), "127.0.0.1", 0) as server:
        assert await answer(server) == b"!"
        for _ in range(FREE + 1):
            failed.add(peer_key(("127.0.0.1", 1)))
        answers = [await answer(server) for _ in range(BURST + 3)]
    assert answers == [b"!"] * BURST + [b""] * 3
    assert (len(made), failed.rejected) == (1 + BURST, 3)


async def test_a_connection_whose_protocol_cannot_be_made_is_closed():
    errors: list[object] = []

    def make() -> Greeter:
        raise MemoryError

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(type(context["exception"])))
    async with await loop.create_server(admitting(FailedConnections(), make), "127.0.0.1", 0) as server:
        async with asyncio.timeout(60):
            assert await answer(server) == b""
    assert errors == [MemoryError]


async def answer(server: asyncio.Server) -> bytes:
    """Return what a new connection receives until it ends."""
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
