"""Connections that are too many, in all or from one address."""

import tracemalloc

import pytest

from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.endpoint import ConnectionCount
from rocketbroker.transport.peer_limits import ConnectionLimits
from tests.support.transports import ECHO, Handlers, attach, connect, feed, frame


def entered(count: ConnectionCount, host: str, tries: int = 20) -> int:
    return sum(count.enter(f"{host}:{1_000 + number}") for number in range(tries))


def test_an_address_takes_no_more_than_it_leaves(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=15))

    assert [entered(count, f"192.0.2.{number}") for number in range(1, 7)] == [8, 4, 2, 1, 0, 0]
    first, *_ = [record.getMessage() for record in caplog.records]
    assert first.startswith("connection from 192.0.2.1:1008 rejected: 8 connections are open from 192.0.2.1")
    assert "maxConnectionsPerAddress" in first


def test_two_addresses_that_ask_in_turn_get_a_third_each_and_leave_one():
    count = ConnectionCount(ConnectionLimits(max_connections=15))

    assert [count.enter(f"192.0.2.{1 + number % 2}:{number}") for number in range(20)] == [True] * 10 + [False] * 10
    assert entered(count, "192.0.2.3") == 3


def test_strangers_leave_some_for_administrators(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=32, max_connections_per_address=32))

    assert entered(count, "192.0.2.1", 40) == 30
    assert (
        "30 connections are open and the limit is 32 (maxConnections); 2 of them are kept for administ" in caplog.text
    )
    assert [count.enter("192.0.2.9:1", is_trusted=True), entered(count, "127.0.0.1")] == [True, 1]


def test_the_cause_of_the_limit_is_named(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=1, max_connections_cause="ulimit -n: 3 files"))

    assert entered(count, "127.0.0.1") == 1
    assert "1 connections are open and the limit is 1 (ulimit -n: 3 files)" in caplog.text


def test_strangers_leave_some_descriptors_for_administrators(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=1000, max_descriptor=160))

    assert not count.enter("192.0.2.1:1", 150)
    assert "10 of them are kept for administrators" in caplog.text
    assert count.enter("192.0.2.1:1", 149)
    assert count.enter("192.0.2.9:1", 159, is_trusted=True)
    assert not count.enter("192.0.2.9:2", 160, is_trusted=True)


def test_an_address_leaves_as_many_descriptors_as_it_has():
    count = ConnectionCount(ConnectionLimits(max_connections=1000, max_descriptor=160))

    assert sum(count.enter(f"192.0.2.1:{number}", 10 + number) for number in range(200)) == 70


@pytest.mark.parametrize(("lists", "trusted"), [({}, False), ({"admin_white_list": "192.0.2.0/24"}, True)])
@pytest.mark.parametrize("protected", [False, True])
async def test_trusted_are_this_machine_and_the_white_lists(
    handlers: Handlers, lists: dict[str, str], trusted: bool, protected: bool
):
    mode = ProtectedMode(TransportConfig(protected_mode=protected, **lists))  # type: ignore[arg-type]  # by name
    limits = ConnectionLimits(max_connections=16, max_connections_per_address=16)
    _, _, endpoint = connect(handlers.routes(), limits=limits, admit=mode, is_trusted=mode.trusts)

    taken = [attach(endpoint)[1].aborted for _ in range(15)]

    assert taken == [False] * 14 + [not trusted]
    assert mode.trusts("127.0.0.1", "127.0.0.1")


def test_this_machine_may_take_all():
    for local in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"):
        assert entered(ConnectionCount(ConnectionLimits(max_connections=10)), local) == 10


@pytest.mark.parametrize("host", ["192.0.2.1", "127.0.0.1", "[2001:db8::1]"])
def test_a_limit_that_is_set_holds_for_all(host: str, caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=100, max_connections_per_address=3))

    assert entered(count, host) == 3
    assert "(maxConnectionsPerAddress)" in caplog.text


def test_a_network_of_ipv6_is_one_address():
    count = ConnectionCount(ConnectionLimits(max_connections_per_address=3))

    assert sum(entered(count, f"[2001:db8::{number:x}]", 1) for number in range(10)) == 3
    assert entered(count, "[2001:db8:0:1::1]") == 3


def test_those_that_left_are_not_counted():
    count = ConnectionCount(ConnectionLimits(max_connections=10))
    tracemalloc.start()
    for number in range(5_000):
        address = f"192.0.{number // 250}.{number % 250}:{number}"
        assert count.enter(address)
        count.leave(address)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 50_000
    assert entered(count, "192.0.2.1") == 5


async def test_one_that_is_turned_away_leaves_nothing(handlers: Handlers):
    limits = ConnectionLimits(max_connections_per_address=1)
    first, first_transport, endpoint = connect(handlers.routes(), limits=limits)
    second, second_transport = attach(endpoint)
    second.connection_lost(None)
    assert (first_transport.aborted, second_transport.aborted) == (False, True)

    feed(first, frame(ECHO))
    first.connection_lost(None)
    third, third_transport = attach(endpoint)

    assert len(first_transport.answers) == 1
    assert not third_transport.aborted
    assert endpoint.connections == {third}


def test_what_is_left_of_descriptors_is_for_the_store(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=10, max_descriptor=100))

    assert count.enter("127.0.0.1:1", 99)
    assert not count.enter("127.0.0.1:2", 100)
    count.leave("127.0.0.1:1")
    assert count.enter("127.0.0.1:2", 99)
    assert "1 connections are open, and the process may open only 100 files" in caplog.text


def test_rejected_connections_count_by_the_limit():
    count = ConnectionCount(ConnectionLimits(max_connections=2, max_connections_per_address=1))
    entered(count, "192.0.2.1", 3)
    entered(count, "192.0.2.2", 1)
    entered(count, "192.0.2.3", 1)

    assert count.rejected == {"maxConnectionsPerAddress": 2, "maxConnections": 1}
