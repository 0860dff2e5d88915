"""Traffic from the queues has the rows of the job `traffic`; of what queues tell there are tests of their own."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import LAST_MS
from rocketbroker.analytics.jobs.queue_traffic import queue_traffic
from rocketbroker.codec.message.message_decoder import STORE_TIMESTAMP_POSITION
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import overwrite
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.store_damage import places

MINUTE_MS = 60_000
QUARTER_S = 900


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traffic") / "store"
    MixedStore(root, 1500, span_ms=100 * MINUTE_MS, mapped_file_size_commit_log=1 << 18).make()
    return root


def expected(root: Path, interval: int, since_ms: int = 0, until_ms: int = 1 << 62) -> list[dict[str, Any]]:
    """By a plain loop."""
    messages, size = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for row in slow_rows(root / "commitlog"):
        if since_ms <= row["store_timestamp"] < until_ms:
            key = row["store_timestamp"] // (interval * 1000) * interval, row["topic"]
            messages[key] += 1
            size[key] += row["size"]
    return [
        {
            "broker": "store",
            "topic": topic,
            "from_time": datetime.fromtimestamp(begin, UTC),
            "messages": count,
            "bytes": size[begin, topic],
        }
        for (begin, topic), count in sorted(messages.items())
    ]


@pytest.mark.parametrize("interval", [60, QUARTER_S])
def test_the_rows_are_those_of_a_plain_loop(made: Path, interval: int) -> None:
    report = DecodeReport()
    found = queue_traffic(made, interval, report=report).to_pylist()
    assert len({row["from_time"] for row in found}) > 5
    assert found == expected(made, interval)
    assert report.ranges == []


def test_times_and_topics_choose_rows(made: Path) -> None:
    begins = sorted({row["store_timestamp"] // MINUTE_MS * MINUTE_MS for row in slow_rows(made / "commitlog")})
    since, until = begins[10], begins[30]
    found = queue_traffic(made, QUARTER_S, since_ms=since, until_ms=until, topics={"orders"}).to_pylist()
    assert found
    assert found == [row for row in expected(made, QUARTER_S, since, until) if row["topic"] == "orders"]


def test_only_whole_minutes_can_be_expressed(made: Path) -> None:
    with pytest.raises(ConfigError, match="--interval 90: traffic from queues is by whole minutes"):
        queue_traffic(made, 90)
    with pytest.raises(ConfigError, match=r"--since 60001 \(ms since 1970\) is not a whole minute"):
        queue_traffic(made, since_ms=60_001)
    with pytest.raises(ConfigError, match="--until 119999"):
        queue_traffic(made, until_ms=119_999)


def test_what_the_log_cannot_give_is_reported_where_it_is_read(made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "orders")
    place = list(places(store / "commitlog"))[100]
    overwrite(store / "commitlog" / place.file, place.position + 4, b"????")
    report = DecodeReport()
    found = queue_traffic(store, report=report).to_pylist()
    assert sum(row["messages"] for row in found) == len(slow_rows(made / "commitlog")) - 1
    assert [(each.position, each.length) for each in report.ranges] == [(place.position, place.size)]


@pytest.mark.parametrize(("stored_ms", "shown"), [(1 << 62, 0), (LAST_MS + 1, 0), (LAST_MS, 1)])
def test_a_time_that_no_calendar_has_is_null(made: Path, tmp_path: Path, stored_ms: int, shown: int) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    place = next(iter(places(store / "commitlog")))
    overwrite(store / "commitlog" / place.file, place.position + STORE_TIMESTAMP_POSITION, stored_ms.to_bytes(8, "big"))
    found = queue_traffic(store, QUARTER_S).to_pylist()
    assert sum(row["messages"] for row in found if row["from_time"] is None) == 1 - shown
    assert sum(row["messages"] for row in found if row["from_time"] and row["from_time"].year == 9999) == shown
