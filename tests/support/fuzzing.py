"""Input that is almost right: recorded bytes with flips, cuts, splices and lengths set to extremes.

``mutated`` is a strategy, which hypothesis shrinks to the least mutations that fail; ``derived`` makes many more from
one draw, so that a long run takes microseconds a case. ``Costs`` says what a call took in memory and Python calls,
which is the same on every machine.
"""

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

# Claims of a length or count: nothing, too little, just too much, far too much, negative.
EXTREMES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
KINDS = ("flip", "byte", "cut", "drop", "insert", "repeat", "zero", "short", "int", "nudge", "long", "splice")
LONGEST_PIECE = 64


class Mutation(NamedTuple):
    """One change: ``kind`` of ``KINDS``, at a place modulo the length, with a value that the kind makes use of."""

    kind: str
    at: int
    value: int
    length: int


mutations = st.builds(
    Mutation,
    st.sampled_from(KINDS),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 32),
    st.integers(1, LONGEST_PIECE),
)


def mutate(data: bytes, changes: Sequence[Mutation], other: bytes = b"") -> bytes:
    """Return ``data`` after some changes; ``other`` is what splices are taken from."""
    found = bytearray(data)
    for change in changes:
        _apply(found, change, other or data)
    return bytes(found)


def _apply(found: bytearray, change: Mutation, other: bytes) -> None:
    kind, at, value, length = change
    at %= len(found) + 1
    extreme = EXTREMES[value % len(EXTREMES)]
    if kind == "flip" and at < len(found):
        found[at] ^= 1 << value % 8
    elif kind == "byte" and at < len(found):
        found[at] = value % 256
    elif kind == "cut":
        del found[at:]
    elif kind == "drop":
        del found[at : at + length]
    elif kind == "insert":
        found[at:at] = random.Random(value).randbytes(length)
    elif kind == "repeat":
        found[at:at] = found[at : at + length] * (1 + value % 3)
    elif kind == "zero":
        end = min(at + length, len(found))
        found[at:end] = bytes(end - at)
    elif kind == "splice":
        start = value % (len(other) + 1)
        found[at : at + length] = other[start : start + length]
    else:
        _apply_number(found, kind, at, extreme, value)


def _apply_number(found: bytearray, kind: str, at: int, extreme: int, value: int) -> None:
    size = {"short": 2, "int": 4, "nudge": 4, "long": 8}.get(kind, 0)
    if not size or at + size > len(found):
        return
    if kind == "nudge":  # a length that is wrong by a little
        extreme = int.from_bytes(found[at : at + size], "big") + value % 9 - 4
    elif kind == "long" and value & 1:
        extreme = -1 - extreme
    found[at : at + size] = (extreme % (1 << 8 * size)).to_bytes(size, "big")


def mutated(bases: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy for recorded bytes after up to four changes, or any bytes."""
    base = st.sampled_from(bases)
    return st.one_of(
        st.builds(mutate, base, st.lists(mutations, min_size=1, max_size=4), base), st.binary(max_size=200), base
    )


def derived(data: bytes, bases: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """``data`` and ``count - 1`` more of its kin: changed once more, or another of ``bases`` changed, or any bytes."""
    chance = random.Random(seed)
    yield data
    for _ in range(count - 1):
        what = chance.randrange(16)
        if what == 0:
            yield chance.randbytes(chance.randrange(200))
        else:
            base = data if what < 4 else chance.choice(bases)
            yield mutate(base, [_random_mutation(chance) for _ in range(chance.randint(1, 4))], chance.choice(bases))


def _random_mutation(chance: random.Random) -> Mutation:
    return Mutation(
        chance.choice(KINDS), chance.getrandbits(20), chance.getrandbits(32), chance.randint(1, LONGEST_PIECE)
    )


class Costs(NamedTuple):
    """Cost of a call: the most bytes held at once, and the number of Python and C calls."""

    peak_bytes: int
    calls: int


def costs_of(function: Callable[[bytes], Any], data: bytes) -> Costs:
    """Run a function twice with the same input, and measure."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        function(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    calls = 0

    def count(_frame: Any, _event: str, _argument: Any) -> None:
        nonlocal calls
        calls += 1

    old = sys.getprofile()
    sys.setprofile(count)
    try:
        function(data)
    finally:
        sys.setprofile(old)
    return Costs(peak - before, calls)
