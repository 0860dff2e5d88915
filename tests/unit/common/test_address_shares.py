from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.common.address_shares import AddressShares, ByteBudget, address_key, is_loopback
from tests.support.fakes import FakeClock


def test_ipv6_hosts_of_a_network_share():
    one, other, far = (host_bytes(host, 80) for host in ("2001:db8::1", "2001:db8::2:1", "2001:db8:1::1"))
    assert address_key(one) == address_key(other) != address_key(far)


def test_ipv4_hosts_have_one_each():
    assert address_key(host_bytes("10.0.0.1", 80)) == address_key(host_bytes("10.0.0.1", 81)) == bytes([10, 0, 0, 1])
    assert address_key(host_bytes("10.0.0.2", 80)) == bytes([10, 0, 0, 2])


def test_each_further_address_finds_room():
    shares, limit, count = AddressShares(), 1_000, 0
    taken = []
    for key in (b"a", b"b", b"c"):
        before = count
        while shares.allows(key, limit - count):
            shares.add(key)
            count += 1
        taken.append(count - before)
    assert taken == [500, 250, 125]
    shares.remove(b"c")
    assert shares.allows(b"c", limit - count)
    assert not shares.allows(b"d", 0)


def test_entries_may_weigh_more():
    shares = AddressShares()
    shares.add(b"a", 33)
    assert not shares.allows(b"a", 65, 33)
    assert shares.allows(b"a", 66, 33)
    shares.remove(b"a", 33)
    assert (shares.taken(b"a"), shares._taken) == (0, {})


def test_this_machine_is_known_by_loopback():
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "10.127.0.1", "2001:db8::1")
    assert [is_loopback(address_key(host_bytes(host, 80))) for host in hosts] == [True, True, True, False, False]


def test_the_bucket_keeps_ten_seconds_of_its_rate():
    clock = FakeClock()
    budget = ByteBudget(clock)
    assert budget.take(900, 100)
    assert budget.take(900, 100), "the last may be more than what is left"
    assert not budget.take(1, 100)
    clock.advance(8)
    assert not budget.take(1, 100)
    clock.advance(0.01)
    assert budget.take(1, 100)
    assert not budget.take(1, 100)
    clock.advance(3600)
    assert [budget.take(500, 100) for _ in range(3)] == [True, True, False]


def test_a_rate_that_changes_counts_from_then_on():
    clock = FakeClock()
    budget = ByteBudget(clock)
    assert budget.take(1_000, 100)
    assert not budget.take(1, 100)
    assert budget.take(1, 200)
