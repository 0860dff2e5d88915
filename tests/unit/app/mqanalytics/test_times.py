from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from rocketbroker.app.mqanalytics.times import parse_time, plain, shown_time, to_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1795255162876", 1795255162876),
        ("0", 0),
        ("-5", -5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.250+01:00", 1250),
        ("2026-11-21T09:32:42.876+00:00", 1795253562876),
    ],
)
def test_a_time_is_iso_8601_with_a_zone_or_milliseconds(text: str, time_ms: int):
    assert parse_time(text) == time_ms


@pytest.mark.parametrize("text", ["", "now", "2026-11-21", "2026-11-21T09:32:42", "12.5", "2026-13-01T00:00:00Z", "²"])
def test_anything_else_is_refused_with_what_would_be_right(text: str):
    with pytest.raises(typer.BadParameter, match="a date and time with its zone is expected"):
        parse_time(text)


def test_times_are_shown_in_utc_and_are_numbers_in_json():
    moment = datetime(2026, 11, 21, 9, 32, 42, 876_000, tzinfo=timezone(timedelta(hours=2)))

    assert shown_time(moment) == "2026-11-21T07:32:42.876Z"
    assert shown_time(datetime(2026, 11, 21, tzinfo=UTC)) == "2026-11-21T00:00:00Z"
    assert plain(moment) == to_ms(moment) == parse_time("2026-11-21T07:32:42.876Z")
    assert plain("text") == "text"
