import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.analytics.report.charts import BYTES_BORDERS, MILLIS_BORDERS, class_of, largest_of, quantile

VALUES = st.one_of(st.integers(-(10**6), 5000), st.integers(0, 2**63 - 1))


def classes(*values: int) -> list[int]:
    found: list[int] = class_of(np.array(values, np.int64)).tolist()
    return found


@given(st.lists(VALUES, min_size=1))
def test_a_class_holds_what_has_its_first_three_digits(values: list[int]):
    for value, found in zip(values, classes(*values), strict=True):
        if value < 0:
            assert found == -1
        else:
            digits = str(value)
            rest = max(len(digits) - 3, 0)
            assert largest_of(found) == (int(digits[:3]) + 1) * 10**rest - 1


@given(VALUES, VALUES)
def test_classes_ascend_with_values(one: int, other: int):
    low, high = classes(min(one, other), max(one, other))
    assert low <= high


@pytest.mark.parametrize("borders", [BYTES_BORDERS, MILLIS_BORDERS])
def test_borders_of_bars_are_borders_of_classes(borders: tuple[int, ...]):
    assert list(borders) == sorted(borders)
    assert [largest_of(each) for each in classes(*(border - 1 for border in borders))] == [b - 1 for b in borders]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_that_of_the_values_or_a_hundredth_more(values: list[int], part: float):
    found, counts = np.unique(class_of(np.array(values, np.int64)), return_counts=True)
    rank = next(at for at in range(1, len(values) + 1) if at >= part * len(values) - 1e-9)
    exact = sorted(values)[rank - 1]
    assert exact <= quantile(found, counts.astype(np.int64), part) <= exact * 1.01 + 1
