"""Snapshots of consumer offsets: what they hold, and that they are there as a whole."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rocketbroker.analytics.jobs.snapshots import SCHEMA, take_snapshot, write_snapshot
from rocketbroker.common.errors import StoreError
from tests.support.stores import make_store, message

NOW = 1_795_255_162_876


async def filled(root: Path) -> Path:
    store = make_store(root)
    await store.start()
    for number in range(150):
        store.appender.put_message(message(queue_id=number % 2))
    store.appender.put_message(message(topic="Other"))
    await store.stop()
    table = {"Topic@G": {"0": 70, "1": 75}, "Topic@H": {"1": 3}, "Gone@G": {"0": 9}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return root


async def test_a_snapshot_has_offsets_and_ends_of_queues(tmp_path: Path) -> None:
    snapshot = take_snapshot(f"a={await filled(tmp_path)}", NOW)
    assert snapshot.schema.equals(SCHEMA)
    rows = {(row["group_name"], row["topic"], row["queue_id"]): row for row in snapshot.to_pylist()}
    assert {key: (row["consumer_offset"], row["max_offset"]) for key, row in rows.items()} == {
        ("G", "Topic", 0): (70, 75),
        ("G", "Topic", 1): (75, 75),
        ("H", "Topic", 1): (3, 75),
        ("G", "Gone", 0): (9, None),
    }
    assert {(row["broker"], row["time_ms"]) for row in rows.values()} == {("a", NOW)}


@pytest.mark.parametrize("name", ["@G", "a/b@G", "..@G", "T\\u@G", "T"])
async def test_a_name_that_no_topic_can_have_ends_no_snapshot(tmp_path: Path, name: str) -> None:
    root = await filled(tmp_path)
    offsets = {"Topic@G": {"0": 70}, name: {"0": 1}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    rows = {row["topic"]: row["max_offset"] for row in take_snapshot(root, NOW).to_pylist()}
    assert rows == {"Topic": 75, name.partition("@")[0]: None}


async def test_it_is_written_whole_under_the_name_of_its_time(tmp_path: Path) -> None:
    snapshot = take_snapshot(await filled(tmp_path / "store"), NOW)
    path = write_snapshot(snapshot, tmp_path / "new" / "snapshots", NOW)
    assert path.name == "consumerOffset-20261121T095922876Z.parquet"
    assert pq.read_table(path).equals(snapshot)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"consumerOffset-.* cannot be written"):
        write_snapshot(SCHEMA.empty_table(), tmp_path / "file", NOW)


def test_a_snapshot_loads_nothing_of_spark() -> None:
    code = (
        "import sys, rocketbroker.app.mqanalytics.tables, rocketbroker.analytics.jobs.snapshots; "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
