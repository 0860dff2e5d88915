"""Unique ids: never twice, and what is in them."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_client_id_setter import UniqueIds, month_around
from rocketbroker.codec.message.message_id import decode_unique_id, ip_bytes

IP = bytes([192, 0, 2, 2])
TIMES = st.integers(0, 4_000_000_000_000)


def test_an_id_has_address_process_time_and_counter():
    now = 1_700_000_000_000
    generator = UniqueIds(IP, 0x14711, 5, lambda: now)
    first, second = decode_unique_id(generator.create()), decode_unique_id(generator.create())
    assert (first.ip, first.pid, first.counter) == ("192.0.2.2", 0x4711, 0)
    assert first.ms_diff == now - month_around(now)[0]
    assert second == first._replace(counter=1)


def test_ids_of_an_ipv6_machine_are_longer():
    assert len(UniqueIds(ip_bytes("2001:db8::1"), 1, 2, lambda: 0).create()) == 56


def test_ids_differ_also_between_generators():
    generators = [UniqueIds(IP, 1, salt, lambda: 0) for salt in range(4)]
    ids = [generator.create() for generator in generators for _ in range(5000)]
    assert len(set(ids)) == len(ids)


def test_time_counts_from_zero_in_a_new_month():
    now = 1_700_000_000_000
    generator = UniqueIds(IP, 1, 2, lambda: now)
    generator.create()
    now = month_around(now)[1]
    assert decode_unique_id(generator.create()).ms_diff == 0


@given(TIMES)
def test_a_time_lies_in_its_month(time_ms: int):
    start, end = month_around(time_ms)
    assert start <= time_ms < end
    assert 27 < (end - start) / 86_400_000 < 32
    assert datetime.fromtimestamp(start / 1000, tz=UTC).astimezone().day == 1
