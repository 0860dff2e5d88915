"""Connections that are too many, in all or from one address."""

import pytest

from rocketbroker.transport.connection_count import ConnectionCount
from rocketbroker.transport.connection_limits import ConnectionLimits
from tests.support.transports import ECHO, Handlers, attach, connect, feed, frame


def entered(count: ConnectionCount, host: str, tries: int = 20) -> int:
    return sum(count.enter(f"{host}:{1_000 + number}") for number in range(tries))


def test_one_address_takes_no_more_than_half(caplog):
    count = ConnectionCount(ConnectionLimits(max_connections=10))

    assert entered(count, "192.0.2.1") == 5
    assert entered(count, "192.0.2.2") == 5
    assert entered(count, "192.0.2.3") == 0
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("connection from 192.0.2.1:1005 rejected: 5 connections are open from 192.0.2.1")
    assert "(half of maxConnections)" in line


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
    for number in range(100):
        assert count.enter(f"192.0.2.1:{number}")
        count.leave(f"192.0.2.1:{number}")

    assert not count._by_source
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
