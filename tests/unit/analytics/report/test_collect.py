"""The facts of a report against a plain loop over struct."""

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.analytics import Selection
from rocketbroker.analytics.report.charts import largest_of
from rocketbroker.analytics.report.collect import collect_facts
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import Colours
from rocketbroker.analytics.report.page import write_report
from rocketbroker.analytics.report.sections import dead_letters, traffic
from rocketbroker.codec.message.message_const import BORNHOST_V6_FLAG, INNER_BATCH_FLAG
from rocketbroker.codec.message.message_decoder import STORE_TIMESTAMP_POSITION
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY
from rocketbroker.common.errors import StoreError
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.consume_queue_writer import write_queues
from tests.support.mixed_store import GROUPS, MixedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.store_damage import damage, places

COUNT = 5_000
MINUTE_MS = 60_000
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MixedStore:
    return MixedStore(tmp_path_factory.mktemp("facts") / "store", COUNT, mapped_file_size_commit_log=1 << 19).make()


@pytest.fixture(scope="module")
def found(made: MixedStore) -> StoreFacts:
    return collect_facts(f"b={made.root}")


@pytest.fixture(scope="module")
def rows(made: MixedStore) -> Rows:
    return slow_rows(made.root / "commitlog")


def test_store_and_time_are_reported(found: StoreFacts, made: MixedStore, rows: Rows):
    assert found.stores == (("b", str(made.root)),)
    assert (found.first_ms, found.last_ms) == (rows[0]["store_timestamp"], rows[-1]["store_timestamp"])
    assert (found.asked, found.keys_missed) == ("", 0)


def test_traffic_is_counted_by_topic_and_minute(found: StoreFacts, rows: Rows):
    expected: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        total = expected[row["topic"], row["store_timestamp"] // MINUTE_MS * MINUTE_MS]
        total[0] += 1
        total[1] += row["size"]
    assert [tuple(row.values()) for row in found.traffic.to_pylist()] == [
        (*key, *expected[key]) for key in sorted(expected)
    ]


def test_queues_are_counted_with_their_ends(found: StoreFacts, made: MixedStore, rows: Rows):
    size = Counter[tuple[str, int]]()
    for row in rows:
        size[row["topic"], row["queue_id"]] += row["size"]
    assert [tuple(row.values()) for row in found.queues.to_pylist()] == [
        ("b", *key, count, size[key], count) for key, count in sorted(made.counts.items())
    ]


def test_keys_are_counted_word_by_word(found: StoreFacts, rows: Rows):
    counts = Counter((row["topic"], key) for row in rows for key in (row["keys"] or "").split())
    expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:50]
    assert [((row["topic"], row["key"]), row["messages"]) for row in found.keys.to_pylist()] == expected
    assert found.keys.num_rows == 50


def test_sizes_are_counted_by_class(found: StoreFacts, rows: Rows):
    assert sum(found.sizes.column("messages").to_pylist()) == COUNT
    assert sum(found.sizes.column("total").to_pylist()) == sum(row["size"] for row in rows)
    for row in found.sizes.to_pylist():
        assert largest_of(row["size_class"]) * 0.99 - 1 <= row["most"] <= largest_of(row["size_class"])


def test_delays_are_those_of_first_deliveries_and_retries_by_attempt(found: StoreFacts, rows: Rows):
    first = [row for row in rows if not row["topic"].startswith(("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_XXXX"))]
    counted = Counter[str]()
    for each in found.delays.to_pylist():
        counted[each["topic"]] += each["messages"]
    assert counted == Counter(row["topic"] for row in first)
    assert sum(each["messages"] for each in found.delays.to_pylist() if each["delay_class"] == -1) == sum(
        row["store_timestamp"] < row["born_timestamp"] for row in first
    )
    again = Counter((row["topic"][7:], row["reconsume_times"]) for row in rows if row["topic"].startswith("%RETRY%"))
    attempts = Counter[tuple[str, int]]()
    for each in found.retries.to_pylist():
        attempts[each["group"], each["attempt"]] += each["messages"]
    assert attempts == again


def test_dead_letters_name_group_and_origin(found: StoreFacts, rows: Rows):
    dead = [row for row in rows if row["topic"].startswith("%DLQ%")]
    expected = {
        (group, topic, len(mine), mine[0]["store_timestamp"], mine[-1]["store_timestamp"])
        for group, topic in GROUPS.items()
        if (mine := [row for row in dead if row["topic"] == f"%DLQ%{group}"])
    }
    assert expected
    assert {tuple(row.values()) for row in found.dead_letters.to_pylist()} == expected


def test_lag_counts_messages_after_the_committed_offsets(found: StoreFacts, made: MixedStore):
    lags = {(row["group"], row["topic"], row["queue_id"]): row for row in found.lag.to_pylist()}
    for part, (group, topic) in zip((1.0, 0.97, 0.4), GROUPS.items(), strict=True):
        for (name, queue_id), count in made.counts.items():
            if name == topic:
                row = lags.pop((group, topic, queue_id))
                assert (row["committed"], row["end"]) == (int(count * part), count)
                assert row["lag"] == count - int(count * part)
    assert lags == {}
    assert found.lag.column("lag").to_pylist() == sorted(found.lag.column("lag").to_pylist(), reverse=True)


def test_lag_of_a_queue_of_batches_counts_the_messages_in_them(tmp_path: Path):
    root = tmp_path / "store"
    record = CommitLogWriter(root).append(topic=b"Batches", sys_flag=INNER_BATCH_FLAG, queue_id=1, queue_offset=10)
    queue = root / "batchconsumequeue" / "Batches" / "1"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(BATCH_ENTRY.pack(0, len(record), 0, 0, 10, 5, -1, 0) + bytes(46))
    (root / "config").mkdir()
    offsets = {"offsetTable": {"Batches@G": {"1": 12}, "Gone@G": {"0": 3}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    (row,) = collect_facts(root).lag.to_pylist()
    assert row | {"broker": ""} == {
        "broker": "",
        "group": "G",
        "topic": "Batches",
        "queue_id": 1,
        "committed": 12,
        "end": 15,
        "lag": 3,
    }


def test_lag_of_a_recreated_topic_is_that_of_its_new_queue(tmp_path: Path):
    root = tmp_path / "store"
    writer = CommitLogWriter(root)
    for number in [*range(100), *range(5)]:
        writer.append(b"x", b"T", b"", queue_offset=number)
    write_queues(root, slow_rows(root / "commitlog")[100:])
    (root / "config").mkdir()
    offsets = {"offsetTable": {"T@G": {"0": 5}, "..@G": {"0": 1}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    (row,) = collect_facts(root).lag.to_pylist()
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == ("T", 5, 5, 0)
    shutil.rmtree(root / "consumequeue")
    (row,) = collect_facts(root).lag.to_pylist()
    assert (row["end"], row["lag"]) == (100, 95)


def test_a_key_that_occurs_twice_in_a_message_counts_once(tmp_path: Path):
    writer = CommitLogWriter(tmp_path)
    writer.append(b"x", b"T", b"KEYS\x01k  l k\x02")
    writer.append(b"x", b"T", b"KEYS\x01k\x02")
    writer.append(b"x", b"U", b"")
    assert [tuple(row.values()) for row in collect_facts(tmp_path).keys.to_pylist()] == [("T", "k", 2), ("T", "l", 1)]


def test_minutes_before_1970_begin_before_their_times(tmp_path: Path):
    writer = CommitLogWriter(tmp_path)
    for time_ms in (-60_001, -60_000, -1, 0, 59_999):
        writer.append(b"x", b"T", b"", store_timestamp=time_ms)
    minutes = {row["from_ms"]: row["messages"] for row in collect_facts(tmp_path).traffic.to_pylist()}
    assert minutes == {-120_000: 1, -60_000: 2, 0: 2}


def test_delays_are_those_of_what_producers_sent(tmp_path: Path):
    writer = CommitLogWriter(tmp_path)
    for topic in (b"orders", b"rmq_sys_wheel_timer", b"TRANS_CHECK_MAX_TIME_TOPIC", b"SCHEDULE_TOPIC_XXXX"):
        writer.append(b"x", topic, b"")
    assert {row["topic"] for row in collect_facts(tmp_path).delays.to_pylist()} == {"orders"}


def test_retries_of_pop_count_for_their_group(tmp_path: Path):
    writer = CommitLogWriter(tmp_path)
    popped = b"1ST_POP_TIME\x011\x02ORIGIN_GROUP\x01G\x02"
    for topic in (b"%RETRY%G", b"%RETRY%G_T", b"%RETRY%G+T", b"%RETRY%G_U"):
        properties = popped if topic == b"%RETRY%G_T" else b"RETRY_TOPIC\x01U\x02"
        writer.append(b"x", topic, properties, reconsume_times=1)
    counts = Counter[str]()
    for row in collect_facts(tmp_path).retries.to_pylist():
        counts[row["group"]] += row["messages"]
    assert counts == {"G": 3, "G_U": 1}


def test_a_selection_counts_for_all_but_lag_which_is_left_out(made: MixedStore, rows: Rows):
    middle = rows[COUNT // 2]["store_timestamp"]
    found = collect_facts(str(made.root), Selection(since_ms=middle, topics=frozenset({"orders"})), asked="orders")
    wanted = [row for row in rows if row["store_timestamp"] >= middle and row["topic"] == "orders"]
    assert sum(found.traffic.column("messages").to_pylist()) == len(wanted) > 0
    assert (found.lag.num_rows, found.dead_letters.num_rows, found.asked) == (0, 0, "orders")


def test_damage_is_reported_and_all_else_counted(made: MixedStore, tmp_path: Path):
    log = shutil.copytree(made.root, tmp_path / "damaged") / "commitlog"
    damages = [each for each in damage(log, list(places(log)), seed=5, times=6) if each.kind != "body"]
    found = collect_facts(str(tmp_path / "damaged"))
    ranges = found.corrupt.to_pylist()
    for each in damages:
        inside = [
            row
            for row in ranges
            if row["path"].endswith(each.file)
            and row["position"] < each.position + each.length
            and each.position < row["position"] + row["length"]
        ]
        assert inside, each
        assert all(row["reason"] for row in inside)
    assert sum(found.traffic.column("messages").to_pylist()) < COUNT
    assert sum(found.traffic.column("bytes").to_pylist()) + sum(row["length"] for row in ranges) == sum(
        place.size for place in places(made.root / "commitlog")
    )


def test_offsets_that_cannot_be_read_are_an_error_that_names_the_file(made: MixedStore, tmp_path: Path):
    root = shutil.copytree(made.root, tmp_path / "damaged")
    offsets = root / "config" / "consumerOffset.json"
    lag = collect_facts(str(root)).lag
    assert lag.num_rows
    shutil.copy(offsets, f"{offsets}.bak")
    offsets.write_text('{"offsetTable": {')
    assert collect_facts(str(root)).lag == lag
    Path(f"{offsets}.bak").unlink()
    with pytest.raises(StoreError, match=r"damaged/config/consumerOffset.json is damaged: .*; there is no .*\.bak"):
        collect_facts(str(root))
    offsets.unlink()
    assert collect_facts(str(root)).lag.num_rows == 0


def test_an_empty_store_has_facts_without_rows(tmp_path: Path):
    (tmp_path / "commitlog").mkdir()
    found = collect_facts(str(tmp_path))
    assert (found.first_ms, found.traffic.num_rows, found.lag.num_rows, found.dead_letters.num_rows) == (None, 0, 0, 0)


def test_times_that_no_calendar_has_are_counted_and_shown_as_unknown(made: MixedStore, tmp_path: Path):
    root = shutil.copytree(made.root, tmp_path / "store")
    rows = slow_rows(root / "commitlog")
    for number, (row, place) in enumerate(zip(rows, places(root / "commitlog"), strict=True)):
        if number == 0 or row["topic"].startswith("%DLQ%"):
            at = place.position + STORE_TIMESTAMP_POSITION + (12 if row["sys_flag"] & BORNHOST_V6_FLAG else 0)
            overwrite(root / "commitlog" / place.file, at, b"\x70" + bytes(7))
    found = collect_facts(root)
    assert sum(found.traffic.column("messages").to_pylist()) == len(rows)
    assert found.first_ms == rows[1]["store_timestamp"]
    counts = Counter(row["topic"] for row in rows)
    shown = {row[0]: row[1] for row in traffic(found, Colours.of(found.traffic, "topic")).table.rows}
    assert shown.items() <= counts.items()
    dead = dead_letters(found).table.rows
    assert {row[3:] for row in dead} == {(None, None, None)}
    assert sum(int(row[2] or 0) for row in dead) == sum(counts[topic] for topic in counts if topic.startswith("%DLQ%"))
    assert write_report(found, tmp_path / "report.html") == [tmp_path / "report.html"]
