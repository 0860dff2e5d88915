"""Traffic from the queues has the rows of the job `traffic`; of what queues tell there are tests of their own."""

import logging
import shutil
import struct
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.columns.message_schema import LAST_MS
from rocketbroker.analytics.jobs.queue_traffic import decoded_traffic, queue_traffic, traffic_by_minute
from rocketbroker.analytics.log import minute_turns, queue_entries
from rocketbroker.analytics.log.minute_turns import MINUTE_MS
from rocketbroker.codec.message.message_decoder import STORE_TIMESTAMP_POSITION
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.store_damage import RecordPlace, places

COUNT = 4_000
LOGGER = "rocketbroker.analytics.jobs.queue_traffic"
Row = tuple[str, str, int, int, int]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traffic") / "store"
    # Minutes with many messages, with one, and with none.
    MixedStore(root, COUNT, span_ms=400 * MINUTE_MS, mapped_file_size_commit_log=1 << 18).make()
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def expected(root: Path, broker: str = "store") -> list[Row]:
    """By a plain loop."""
    messages, size = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for row in slow_rows(root / "commitlog"):
        key = row["topic"], row["store_timestamp"] // MINUTE_MS * MINUTE_MS
        messages[key] += 1
        size[key] += row["size"]
    return sorted((broker, *key, count, size[key]) for key, count in messages.items())


def rows(root: str | Path) -> list[Row]:
    return [tuple(row.values()) for row in traffic_by_minute(root).to_pylist()]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_queues_give_what_a_plain_loop_over_the_log_gives(made: Path, caplog: pytest.LogCaptureFixture):
    wanted = expected(made)
    assert len(list((made / "commitlog").iterdir())) > 3
    assert len({row[2] for row in wanted}) > 200
    assert rows(made) == wanted
    assert told(caplog) == []
    assert [tuple(row.values()) for row in decoded_traffic(made).to_pylist()] == wanted


def test_the_turns_of_long_minutes_are_found(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    root = tmp_path / "store"
    MixedStore(root, COUNT, 2, span_ms=5 * MINUTE_MS, mapped_file_size_commit_log=1 << 19).make()
    assert len({row[2] for row in expected(root)}) in {5, 6}
    assert rows(root) == expected(root)
    assert told(caplog) == []


def test_stores_of_several_brokers_are_distinguished(made: Path, tmp_path: Path):
    other = shutil.copytree(made / "commitlog", tmp_path / "commitlog")
    found = [tuple(row.values()) for row in traffic_by_minute([f"a={made}", f"b={other}"]).to_pylist()]
    assert found == [*expected(made, "a"), *expected(made, "b")]


def test_an_empty_store_has_no_traffic(tmp_path: Path):
    (tmp_path / "commitlog").mkdir()
    assert rows(tmp_path) == []
    with pytest.raises(StoreError, match="does not exist"):
        traffic_by_minute(tmp_path / "none")


def test_what_is_not_yet_in_the_queues_is_read_from_the_log(store: Path, caplog: pytest.LogCaptureFixture):
    last = list(places(store / "commitlog"))[-3:]
    wanted = expected(store)
    for place in last:
        offset = int(place.file) + place.position
        for path in (store / "consumequeue").rglob("0" * 20):
            data = path.read_bytes()
            path.write_bytes(data.replace(struct.pack(">qi", offset, place.size), bytes(12)))
    assert rows(store) == wanted
    assert told(caplog) == []


def forget_a_queue(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders" / "1")


def forget_an_entry(store: Path) -> None:
    path = store / "consumequeue" / "clicks" / "2" / ("0" * 20)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(20) + data[60:])


def set_times_back(store: Path) -> None:
    """From the middle of the log on, by a day."""
    for place in list(places(store / "commitlog"))[COUNT // 2 :]:
        add_to_time(store, place, -86_400_000)


def set_one_time_back(store: Path) -> None:
    add_to_time(store, list(places(store / "commitlog"))[COUNT // 2], -2 * MINUTE_MS)


def add_to_time(store: Path, place: RecordPlace, millis: int) -> None:
    with (store / "commitlog" / place.file).open("r+b") as file:
        file.seek(place.position + 36)
        at = place.position + (68 if file.read(4)[3] & 16 else 56)
        file.seek(at)
        (stored,) = struct.unpack(">q", file.read(8))
        file.seek(at)
        file.write(struct.pack(">q", stored + millis))


def damage_a_message_at_the_turn_of_a_minute(store: Path) -> None:
    """The first of the log, which is always looked at."""
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(28)
        file.write(struct.pack(">q", 4711))


@pytest.mark.parametrize("spoil", [forget_a_queue, forget_an_entry, set_times_back, set_one_time_back])
def test_queues_with_a_gap_are_not_counted_by(store: Path, caplog: pytest.LogCaptureFixture, spoil):
    spoil(store)
    with caplog.at_level(logging.WARNING):
        assert rows(store) == expected(store)
    assert len(told(caplog)) == 1
    assert "traffic is counted from the log instead" in told(caplog)[0]


def test_where_a_message_is_not_as_its_queue_says_the_log_is_read(store: Path, caplog: pytest.LogCaptureFixture):
    wanted = expected(store)
    damage_a_message_at_the_turn_of_a_minute(store)
    found = rows(store)
    assert sum(row[3] for row in found) == sum(row[3] for row in wanted) - 1
    assert "no message begins at 0" in told(caplog)[0]


@pytest.mark.parametrize("stored_ms", [-(1 << 62), 1 << 62])
def test_a_damaged_store_time_is_counted_in_the_minute_that_it_says(store: Path, stored_ms: int):
    place = next(iter(places(store / "commitlog")))
    path = store / "commitlog" / place.file
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, place.position + STORE_TIMESTAMP_POSITION, stored_ms)
    path.write_bytes(data)
    found = [tuple(row.values()) for row in decoded_traffic(store).to_pylist()]
    assert found == expected(store)
    assert stored_ms // MINUTE_MS * MINUTE_MS in {row[2] for row in found}


@pytest.mark.parametrize("queues", [[], ["Topic1/0"]])
def test_a_log_that_no_queue_leads_into_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, queues: list[str]):
    CommitLogWriter(tmp_path / "store").append_many(50)
    for name in queues:
        (tmp_path / "store" / "consumequeue" / name).mkdir(parents=True)
    assert rows(tmp_path / "store") == expected(tmp_path / "store")
    assert ["no queue points into the log" in text for text in told(caplog)] == [True]


@pytest.mark.parametrize("most", [1, 100])
@pytest.mark.parametrize("short", [0, 10_000])
def test_a_store_with_more_entries_than_are_kept_gives_the_same(
    made: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, most: int, short: int
):
    monkeypatch.setattr(minute_turns, "_MOST_KNOWN", most)
    monkeypatch.setattr(minute_turns, "_SHORT", short)
    monkeypatch.setattr(queue_entries, "_BLOCK", 50)
    assert rows(made) == expected(made)
    assert told(caplog) == []


def test_stretches_are_read_in_several_groups(made: Path, caplog: pytest.LogCaptureFixture, monkeypatch):
    monkeypatch.setattr(minute_turns, "_SHORT", 20_000)
    monkeypatch.setattr(minute_turns, "_TOGETHER", 60_000)
    assert rows(made) == expected(made)
    assert told(caplog) == []


@pytest.mark.parametrize("short", [0, 256 << 10])
@pytest.mark.parametrize("size", [0, 50, 1 << 30])
def test_a_message_near_the_turn_of_a_minute_whose_size_leads_astray_has_the_log_read(
    store: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, size: int, short: int
):
    monkeypatch.setattr(minute_turns, "_SHORT", short)
    before = before_turn_of_a_minute(store)
    with (store / "commitlog" / before.file).open("r+b") as file:
        file.seek(before.position)
        file.write(struct.pack(">i", size))
    found = rows(store)
    assert sum(row[3] for row in found) == COUNT - 1
    assert "no message begins at" in told(caplog)[0]


def before_turn_of_a_minute(store: Path) -> RecordPlace:
    """The last message of one, away from the begin of a file."""
    found = list(places(store / "commitlog"))
    minutes = [row["store_timestamp"] // MINUTE_MS for row in slow_rows(store / "commitlog")]
    return next(
        found[n] for n in range(COUNT // 2, COUNT) if minutes[n] != minutes[n + 1] and found[n].position > 1 << 16
    )


def test_messages_of_a_deleted_topic_count_for_its_name(store: Path, caplog: pytest.LogCaptureFixture):
    (store / "consumequeue" / "orders").rename(store / "consumequeue" / "orders.deleted-0")
    assert rows(store) == expected(store)
    assert len(told(caplog)) == 1


def test_queues_that_lead_to_messages_of_another_topic_count_nothing(store: Path, caplog: pytest.LogCaptureFixture):
    shutil.copytree(store / "consumequeue" / "orders" / "1", store / "consumequeue" / "%LMQ%orders" / "0")
    assert rows(store) == expected(store)
    assert told(caplog) == []


MINUTE_MS_QUEUE_TRAFFIC = 60_000
QUARTER_S = 900


@pytest.fixture(scope="module")
def made_queue_traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traffic") / "store"
    MixedStore(root, 1500, span_ms=100 * MINUTE_MS_QUEUE_TRAFFIC, mapped_file_size_commit_log=1 << 18).make()
    return root


def expected_queue_traffic(
    root: Path, interval: int, since_ms: int = 0, until_ms: int = 1 << 62
) -> list[dict[str, Any]]:
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
def test_the_rows_are_those_of_a_plain_loop(made_queue_traffic: Path, interval: int) -> None:
    report = DecodeReport()
    found = queue_traffic(made_queue_traffic, interval, report=report).to_pylist()
    assert len({row["from_time"] for row in found}) > 5
    assert found == expected_queue_traffic(made_queue_traffic, interval)
    assert report.ranges == []


def test_times_and_topics_choose_rows(made_queue_traffic: Path) -> None:
    begins = sorted(
        {
            row["store_timestamp"] // MINUTE_MS_QUEUE_TRAFFIC * MINUTE_MS_QUEUE_TRAFFIC
            for row in slow_rows(made_queue_traffic / "commitlog")
        }
    )
    since, until = begins[10], begins[30]
    found = queue_traffic(made_queue_traffic, QUARTER_S, since_ms=since, until_ms=until, topics={"orders"}).to_pylist()
    assert found
    assert found == [
        row for row in expected_queue_traffic(made_queue_traffic, QUARTER_S, since, until) if row["topic"] == "orders"
    ]


def test_only_whole_minutes_can_be_expressed(made_queue_traffic: Path) -> None:
    with pytest.raises(ConfigError, match="--interval 90: traffic from queues is by whole minutes"):
        queue_traffic(made_queue_traffic, 90)
    with pytest.raises(ConfigError, match=r"--since 60001 \(ms since 1970\) is not a whole minute"):
        queue_traffic(made_queue_traffic, since_ms=60_001)
    with pytest.raises(ConfigError, match="--until 119999"):
        queue_traffic(made_queue_traffic, until_ms=119_999)


def test_what_the_log_cannot_give_is_reported_where_it_is_read(made_queue_traffic: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made_queue_traffic, tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "orders")
    place = list(places(store / "commitlog"))[100]
    overwrite(store / "commitlog" / place.file, place.position + 4, b"????")
    report = DecodeReport()
    found = queue_traffic(store, report=report).to_pylist()
    assert sum(row["messages"] for row in found) == len(slow_rows(made_queue_traffic / "commitlog")) - 1
    assert [(each.position, each.length) for each in report.ranges] == [(place.position, place.size)]


@pytest.mark.parametrize(("stored_ms", "shown"), [(1 << 62, 0), (LAST_MS + 1, 0), (LAST_MS, 1)])
def test_a_time_that_no_calendar_has_is_null(
    made_queue_traffic: Path, tmp_path: Path, stored_ms: int, shown: int
) -> None:
    store = shutil.copytree(made_queue_traffic, tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    place = next(iter(places(store / "commitlog")))
    overwrite(store / "commitlog" / place.file, place.position + STORE_TIMESTAMP_POSITION, stored_ms.to_bytes(8, "big"))
    found = queue_traffic(store, QUARTER_S).to_pylist()
    assert sum(row["messages"] for row in found if row["from_time"] is None) == 1 - shown
    assert sum(row["messages"] for row in found if row["from_time"] and row["from_time"].year == 9999) == shown
