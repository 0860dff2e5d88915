"""Snapshots of consumer offsets: what they hold, and that they are there as a whole."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rocketbroker.analytics.jobs.snapshots import SCHEMA, queue_end, take_snapshot, write_snapshot
from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.store_root import store_roots
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY
from rocketbroker.common.errors import StoreError
from tests.support import golden_store
from tests.support.stores import make_store, message

NOW = 1_795_255_162_876


async def filled(root: Path) -> Path:
    store = make_store(root)
    await store.start()
    for number in range(150):
        store.put_message(message(queue_id=number % 2))
    store.put_message(message(topic="Other"))
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


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_ends_are_those_of_recorded_queues(tmp_path: Path, name: str) -> None:
    store = golden_store.unpack(name, tmp_path)
    ends: dict[tuple[str, int], int] = {}
    for each in golden_store.manifest(name)["messages"]:
        queue = each["topic"], each["queueId"]
        if (store / "consumequeue" / each["topic"] / str(each["queueId"])).is_dir():
            ends[queue] = max(ends.get(queue, 0), each["queueOffset"] + 1)
    folder = open_folder(store_roots(store)[0])
    assert ends
    assert {queue: queue_end(folder, *queue) for queue in ends} == ends


def test_a_queue_of_batches_ends_behind_the_messages_of_its_last_batch(tmp_path: Path) -> None:
    batches = [(1_000, 5), (1_005, 3), (1_008, 12)]
    entries = [
        BATCH_ENTRY.pack(number * 500, 500, 0, NOW, first, size, -1, 0) for number, (first, size) in enumerate(batches)
    ]
    queue = tmp_path / "batchconsumequeue" / "Batches" / "1"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(b"".join(entries[:2]))
    (queue / f"{92:020d}").write_bytes(entries[2] + bytes(46))
    (tmp_path / "batchconsumequeue" / "Batches" / "2").mkdir()
    folder = open_folder(store_roots(tmp_path)[0])
    assert [queue_end(folder, "Batches", number) for number in range(4)] == [None, 1_020, 0, None]


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
