"""Unique ids: never twice, and what is in them."""

import os
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.client.message_client_id_setter import UniqueIdGenerator, month_around
from rocketbroker.codec.message.message_id import decode_unique_id

TIMES = st.integers(0, 4_000_000_000_000)


class FixedClock:
    """A clock that a test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


def test_an_id_has_address_process_time_and_counter():
    now = 1_700_000_000_000
    generator = UniqueIdGenerator("192.0.2.2", FixedClock(now))
    first, second = decode_unique_id(generator.create_unique_id()), decode_unique_id(generator.create_unique_id())
    assert (first.ip, first.pid, first.counter) == ("192.0.2.2", os.getpid() & 0xFFFF, 0)
    assert first.ms_diff == now - month_around(now)[0]
    assert second == first._replace(counter=1)


def test_ids_of_an_ipv6_machine_are_longer():
    assert len(UniqueIdGenerator("2001:db8::1").create_unique_id()) == 56


def test_ids_differ_also_between_generators():
    generators = [UniqueIdGenerator("192.0.2.2") for _ in range(4)]
    ids = [generator.create_unique_id() for generator in generators for _ in range(5000)]
    assert len(set(ids)) == len(ids)


def test_time_counts_anew_in_a_new_month():
    clock = FixedClock(1_700_000_000_000)
    generator = UniqueIdGenerator("192.0.2.2", clock)
    generator.create_unique_id()
    clock.now_ms = month_around(clock.now_ms)[1]
    assert decode_unique_id(generator.create_unique_id()).ms_diff == 0


@given(TIMES)
def test_a_time_lies_in_its_month(time_ms: int):
    start, end = month_around(time_ms)
    assert start <= time_ms < end
    assert 27 < (end - start) / 86_400_000 < 32
    assert datetime.fromtimestamp(start / 1000, tz=UTC).astimezone().day == 1
