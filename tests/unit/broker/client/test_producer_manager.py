import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.producer_manager import ProducerManager
from tests.support.fakes import FakeClock, FakeConnection


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def manager(clock):
    return ProducerManager(clock, 120.0)


def client(clock, name):
    return ClientChannelInfo(FakeConnection(), name, "GO", 317, clock.monotonic())


def test_register_and_unregister(clock, manager):
    one = client(clock, "one")
    manager.register("p", one)
    manager.register("q", one)
    assert manager.find_channel("one") is one.connection
    manager.unregister("p", one.connection)
    assert manager.find_channel("one") is one.connection
    manager.unregister("q", one.connection)
    manager.unregister("q", one.connection)
    assert (manager.groups, manager.clients) == ({}, {})


def test_close_connection_forgets_everything(clock, manager):
    one, two = client(clock, "one"), client(clock, "two")
    manager.register("p", one)
    manager.register("q", one)
    manager.register("p", two)
    manager.close_connection(one.connection)
    assert manager.groups == {"p": {two.connection: two}}
    assert manager.clients == {"two": two.connection}


def test_client_that_reconnected_before_its_old_connection_closed(clock, manager):
    old, new = client(clock, "one"), client(clock, "one")
    manager.register("p", old)
    manager.register("p", new)
    manager.close_connection(old.connection)
    assert manager.find_channel("one") is new.connection


def test_scan_closes_the_silent(clock, manager):
    one, two = client(clock, "one"), client(clock, "two")
    manager.register("p", one)
    clock.advance(100)
    two.last_update = clock.monotonic()
    manager.register("p", two)
    clock.advance(21)
    manager.scan_not_active()
    assert (one.connection.is_open, two.connection.is_open) == (False, True)
    assert list(manager.groups["p"].values()) == [two]


def test_members_of_a_group_are_available_in_turn(clock, manager):
    assert manager.available_channel("p", "T") is None
    members = [client(clock, name).connection for name in ("one", "two", "three")]
    for number, connection in enumerate(members):
        manager.register("p", ClientChannelInfo(connection, str(number), "GO", 317, clock.monotonic()))
    assert {manager.available_channel("p", "T") for _ in range(3)} == set(members)
    members[0].is_behind = True
    assert {manager.available_channel("p", "T") for _ in range(6)} == set(members[1:])
    members[1].is_open = members[2].is_open = False
    assert manager.available_channel("p", "T") is None, "what is written to one that is behind stays in memory"
    members[0].is_behind = False
    assert manager.available_channel("p", "T") is members[0]
    assert manager.available_channel("q", "T") is None


def test_only_producers_whose_user_may_send_to_the_topic_are_asked(clock, manager):
    allowed = {"T"}
    one = client(clock, "one")
    one.may_publish = allowed.__contains__
    manager.register("p", one)
    assert manager.available_channel("p", "T") is one.connection
    assert manager.available_channel("p", "U") is None
    allowed.clear()
    assert manager.available_channel("p", "T") is None
    # The next heartbeat of the connection may be of another user.
    other = ClientChannelInfo(one.connection, "one", "GO", 317, clock.monotonic())
    other.may_publish = {"U"}.__contains__
    manager.register("p", other)
    assert manager.available_channel("p", "U") is one.connection


def test_a_client_that_changes_its_id_leaves_no_id_behind(clock, manager):
    connection = FakeConnection()
    for number in range(1_000):
        manager.register("p", ClientChannelInfo(connection, f"c{number}", "JAVA", 513, clock.monotonic()))
    assert manager.clients == {"c999": connection}
    manager.close_connection(connection)
    assert manager.clients == manager.groups == {}


def test_a_client_that_changes_its_id_and_leaves_keeps_the_last_id_only(clock, manager):
    one = client(clock, "one")
    manager.register("stays", one)
    for number in range(100):
        manager.register("p", ClientChannelInfo(one.connection, f"id{number}", "GO", 317, clock.monotonic()))
        manager.unregister("p", one.connection)
    assert manager.clients == {"one": one.connection}
    manager.close_connection(one.connection)
    assert (manager.groups, manager.clients) == ({}, {})


def test_an_id_stays_as_long_as_one_group_has_it(clock, manager):
    one = client(clock, "one")
    other = ClientChannelInfo(one.connection, "other", "GO", 317, clock.monotonic())
    manager.register("p", one)
    manager.register("q", one)
    manager.register("q", other)
    assert manager.clients == {"one": one.connection, "other": one.connection}
    manager.unregister("p", one.connection)
    assert manager.clients == {"other": one.connection}
