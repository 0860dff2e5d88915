"""Streams of frames with damage in them: answered, refused or closed, with memory bounded by what came in."""

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.fuzz_targets import targets
from tests.support.fuzzing import Costs, costs_of, derived, mutate, mutated, mutations
from tests.support.transports import ECHO, Handlers, connect, feed, frame

SEED = 20_261_121
FAMILY = 100
CASES = 10_000
# A connection has a transport, an endpoint and a few tasks; the buffer that all share is there before.
MOST_BYTES, MOST_BYTES_EACH = 512 * 1024, 200

FRAMES = targets()["frames"].bases


def serve(stream: bytes, cuts: Sequence[int] = ()) -> None:
    """Let a stream come in after a sound request; whatever it is, that one is answered and nothing raises."""

    async def run() -> None:
        connection, transport, endpoint = connect(Handlers().routes())
        feed(connection, frame(ECHO, b"first", 1))
        feed(connection, stream, [cut % (len(stream) + 1) for cut in cuts])
        await endpoint.tasks.stop()
        first = transport.answers[0]
        assert (first.opaque, first.code, bytes(first.body)) == (1, 0, b"first")
        assert transport.reading or transport.closed

    asyncio.run(run())


def costs_of_stream(stream: bytes) -> Costs:
    """Return the memory that serving takes; the first time fills imports and caches."""
    serve(stream)
    return costs_of(serve, stream)


@given(st.lists(mutated(FRAMES), min_size=1, max_size=3), st.lists(st.integers(0, 5000), max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_streams_are_served(parts: list[bytes], cuts: list[int]) -> None:
    serve(b"".join(parts), cuts)


@given(mutated(FRAMES))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_stream_takes_memory_by_its_length(stream: bytes) -> None:
    costs = costs_of_stream(stream)
    assert costs.peak_bytes <= MOST_BYTES + MOST_BYTES_EACH * len(stream), (costs, stream)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many(record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]) -> None:
    count = 0

    @seed(SEED)
    @settings(
        max_examples=CASES // FAMILY,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(FRAMES), st.lists(mutations, max_size=3), st.integers(0, 2**64 - 1))
    def run(base: bytes, changes: list, number: int) -> None:
        nonlocal count
        chance = random.Random(number)
        for stream in derived(mutate(base, changes, base), FRAMES, number, FAMILY):
            serve(stream + chance.choice(FRAMES), [chance.randrange(5000) for _ in range(chance.randrange(4))])
            count += 1

    run()
    record_property("cases", count)
    with capsys.disabled():
        print(f"\nfuzz connection: seed {SEED}, {count} cases")
    assert count >= CASES
