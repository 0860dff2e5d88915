"""Whatever bytes a decoder is given, it takes them or raises its documented error, at a bounded cost.

The short form draws each case by hypothesis. The long form (``--soak``) takes a million cases, 200 from each draw, and
prints how many it ran; test_fuzz_connection.py and test_damaged_stores.py add theirs.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.fuzz_targets import Target, targets
from tests.support.fuzzing import costs_of, derived, mutate, mutated, mutations

SEED = 20_261_121
FAMILY = 200
# A case in so many is measured.
MEASURED = 97
LONG_RUN = 1_000_000

NAMES = list(targets())


def check_costs(target: Target, data: bytes) -> None:
    """Hold an input against what its target may take."""
    costs = costs_of(target.run, data)
    assert costs.peak_bytes <= target.most_bytes(data), (target.name, costs, len(data), data[:2000])
    assert costs.calls <= target.most_calls(data), (target.name, costs, len(data), data[:2000])


@pytest.mark.parametrize("name", NAMES)
def test_recorded_input_is_accepted(name: str) -> None:
    target = targets()[name]
    assert target.bases
    for data in target.bases:
        assert target.run(data), data


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_input_is_accepted_or_rejected(name: str, data: st.DataObject) -> None:
    target = targets()[name]
    target.run(data.draw(mutated(target.bases)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_input_costs_more_than_its_length_allows(name: str, data: st.DataObject) -> None:
    target = targets()[name]
    check_costs(target, data.draw(mutated(target.bases)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_many(name: str, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]) -> None:
    target = targets()[name]
    wanted = LONG_RUN * target.share // 1000
    count: Counter[str] = Counter()

    @seed(SEED)
    @settings(
        max_examples=wanted // FAMILY,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(target.bases), st.lists(mutations, max_size=3), st.integers(0, 2**64 - 1))
    def run(base: bytes, changes: list, number: int) -> None:
        for data in derived(mutate(base, changes, base), target.bases, number, FAMILY):
            try:
                taken = target.run(data)
            except Exception as error:
                raise AssertionError(f"{name}: {data!r}") from error
            count["taken" if taken else "refused"] += 1
            if count.total() % MEASURED == 0:
                check_costs(target, data)
                count["measured"] += 1

    run()
    cases = count["taken"] + count["refused"]
    record_property("cases", cases)
    with capsys.disabled():
        print(f"\nfuzz {name}: seed {SEED}, {cases} cases, {dict(count)}")
    assert cases >= wanted
