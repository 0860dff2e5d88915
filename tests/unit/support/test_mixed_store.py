from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.mixed_store import TOPICS, MixedStore
from tests.support.slow_store_reader import slow_rows

COUNT = 6_000
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MixedStore:
    root: Path = tmp_path_factory.mktemp("mixed") / "store"
    return MixedStore(root, COUNT, mapped_file_size_commit_log=1 << 19).make()


@pytest.fixture(scope="module")
def rows(made: MixedStore) -> Rows:
    return slow_rows(made.root / "commitlog")


def test_all_sorts_of_topics_are_there(made: MixedStore, rows: Rows):
    assert Counter((row["topic"], row["queue_id"]) for row in rows) == made.counts
    topics = {topic for topic, _ in made.counts}
    assert set(TOPICS) <= topics
    assert {"SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "%DLQ%shipping"} <= topics
    assert any(len(topic) > 127 for topic in topics)


def test_all_sorts_of_records_are_there(made: MixedStore, rows: Rows):
    assert {row["sys_flag"] & 0x700 for row in rows if row["sys_flag"] & 1} == {0, 0x100, 0x200, 0x300}
    assert {row["sys_flag"] & 0x30 for row in rows} == {0, 0x10, 0x20, 0x30}
    assert {row["reconsume_times"] for row in rows} >= {0, 1, 2, 3, 17}
    assert {row["body"][:1] for row in rows} > {b""}
    assert {row["tags"] for row in rows} == {None, "new", "change", "gelöscht"}
    assert len(list((made.root / "commitlog").iterdir())) > 3


def test_times_and_offsets_rise(rows: Rows):
    stored = [row["store_timestamp"] for row in rows]
    assert stored == sorted(stored)
    ends: Counter[tuple[str, int]] = Counter()
    for row in rows:
        assert row["queue_offset"] == ends[row["topic"], row["queue_id"]]
        ends[row["topic"], row["queue_id"]] += 1
