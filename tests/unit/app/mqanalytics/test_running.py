from datetime import UTC, datetime

import pytest

from rocketbroker.app.mqanalytics.running import camel, last_line, text, title

READ = {"notRead": {"ranges": 0, "bytes": 0}}


@pytest.mark.parametrize(
    ("count", "summary", "line"),
    [
        (1, READ, "1 row; everything was read"),
        (2000, {"more": True, **READ}, "2,000 rows; and more (--limit); everything was read"),
        (0, {"notRead": {"ranges": 3, "bytes": 4096}}, "0 rows; 3 ranges, 4,096 bytes not read"),
        (0, {"notRead": {"ranges": 1, "bytes": 7}}, "0 rows; 1 range, 7 bytes not read"),
        (0, {"notRead": None}, "0 rows; not checked for damage"),
    ],
)
def test_the_last_line_says_what_was_not_read(count: int, summary: dict, line: str):
    assert last_line(count, summary) == line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (2.0, "2"),
        (True, "yes"),
        (["a", "b"], "a, b"),
        (datetime(2026, 11, 21, tzinfo=UTC), "2026-11-21T00:00:00Z"),
    ],
)
def test_values_are_put_into_text(value: object, shown: str):
    assert text(value) == shown


def test_names_of_columns_become_titles_and_keys():
    assert (title("queue_id"), camel("queue_id")) == ("Queue id", "queueId")
    assert (title("p99_9_ms"), camel("p99_9_ms")) == ("P99.9 ms", "p999Ms")
    assert (title("under_1h"), camel("under_1h")) == ("Under 1h", "under1h")
