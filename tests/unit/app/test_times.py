"""Times of the tools: one parser for all of them, and three ways to show one."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from rocketbroker.app.times import human_millis, human_seconds, parse_time, plain, shown_time, to_ms
from rocketbroker.common.clock import SystemClock


def local_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, ms: int = 0) -> int:
    moment = datetime(year, month, day, hour, minute, second, ms * 1000)  # noqa: DTZ001 - local
    return round(moment.astimezone().timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1795255162876", 1795255162876),
        ("0", 0),
        ("-5", -5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.250+01:00", 1250),
        (" 2026-11-21T09:32:42.876+00:00", 1795253562876),
        ("2026-11-21", local_ms(2026, 11, 21)),
        ("2026-11-21T09:32:42", local_ms(2026, 11, 21, 9, 32, 42)),
        ("2026-11-21 09:32", local_ms(2026, 11, 21, 9, 32)),
        ("2026-11-21#09:59:24:121", local_ms(2026, 11, 21, 9, 59, 24, 121)),
    ],
)
def test_a_time_has_one_of_many_forms(text: str, time_ms: int):
    assert parse_time(text) == time_ms


def test_now_is_a_time():
    assert abs(parse_time("now") - SystemClock().time_ms()) < 60_000


@pytest.mark.parametrize("text", ["", "yesterday", "12.5", "2026-13-01T00:00:00Z", "2026-11-21#09:59:24", "²"])
def test_anything_else_is_rejected_with_the_forms(text: str):
    with pytest.raises(typer.BadParameter, match="is not a time; expected 2026-11-22, 2026-11-22T04:00:00, "):
        parse_time(text)


def test_times_are_shown_in_utc_and_are_numbers_in_json():
    moment = datetime(2026, 11, 21, 9, 32, 42, 876_000, tzinfo=timezone(timedelta(hours=2)))

    assert shown_time(moment) == "2026-11-21T07:32:42.876Z"
    assert shown_time(datetime(2026, 11, 21, tzinfo=UTC)) == "2026-11-21T00:00:00Z"
    assert plain(moment) == to_ms(moment) == parse_time("2026-11-21T07:32:42.876Z")
    assert plain("text") == "text"


def test_rocketmq_tools_show_local_times():
    time_ms = local_ms(2026, 11, 21, 9, 59, 24, 121)

    assert human_millis(time_ms) == "2026-11-21 09:59:24,121"
    assert human_seconds(time_ms) == "2026-11-21 09:59:24"
    assert (human_millis(0), human_seconds(0)) == ("", "N/A")
