import pytest

from rocketbroker.analytics.report.figures import Unit, cut, show, unique


def test_long_names_keep_their_beginning_and_their_end():
    assert cut("orders") == "orders"
    assert cut("telemetry-" + "x" * 40 + "-eu-west") == "telemetry-xxxxxxxxxxx…-eu-west"
    assert len(cut("y" * 300)) == 30


def test_labels_that_are_alike_are_distinguished():
    assert unique(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1_234_567, Unit.COUNT, "1,234,567"),
        (2.5, Unit.COUNT, "2.50"),
        (999, Unit.BYTES, "999 B"),
        (1000, Unit.BYTES, "1 kB"),
        (1_407_000_000, Unit.BYTES, "1.41 GB"),
        (123_456, Unit.BYTES, "123 kB"),
        (3 * 10**18, Unit.BYTES, "3,000 PB"),
        (0, Unit.BYTES, "0 B"),
        (999, Unit.MILLIS, "999 ms"),
        (90_000, Unit.MILLIS, "1.5 min"),
        (-2_000, Unit.MILLIS, "-2 s"),
        (86_400_000 * 400, Unit.MILLIS, "400 d"),
        (1_795_255_020_000, Unit.TIME, "2026-11-21 09:57:00"),
        (2**62, Unit.TIME, f"{2**62} ms since 1970"),
        (0.256, Unit.SHARE, "25.6 %"),
        ("text", Unit.COUNT, "text"),
        (None, Unit.TIME, "\N{EN DASH}"),
    ],
)
def test_numbers_are_shown_as_people_read_them(value: float | str | None, unit: Unit, expected: str):
    assert show(value, unit) == expected
