"""Parts of a store that this broker cannot read keep it from starting, before anything is written."""

from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from rocketbroker.store.recovery.foreign_store import open_pops
from tests.support.stores import make_store

# Databases of RocketMQ 5.5.0 below config/: separate ones, one for all tables, and those of configManagerVersion=v2.
ROCKSDB = ["topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"]


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("name", ROCKSDB)
async def test_tables_in_rocksdb(tmp_path: Path, name: str):
    folder = tmp_path / "config" / name
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_text("MANIFEST-000005\n")
    before = files_below(tmp_path)

    with pytest.raises(StoreError) as caught:
        await make_store(tmp_path).start()

    assert str(caught.value).startswith(f"{folder} is a RocksDB database (storeType=defaultRocksDB")
    assert "by rocksDBConfigToJson of Apache's mqadmin, then move this folder away" in str(caught.value)
    assert files_below(tmp_path) == before


async def test_the_log_of_a_dledger_group(tmp_path: Path):
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(bytes(64))
    before = files_below(tmp_path)

    with pytest.raises(StoreError, match="is the log of a DLedger group") as caught:
        await make_store(tmp_path).start()

    assert str(caught.value).startswith(str(data))
    assert files_below(tmp_path) == before


async def test_other_folders_are_no_obstacle(tmp_path: Path):
    for name in ("config/backup", "dledger-n0/data", "dledger", "CURRENT"):
        (tmp_path / name).mkdir(parents=True)
    store = make_store(tmp_path)
    await store.start()
    await store.stop()


def test_queues_of_check_points_that_pop_has_not_read():
    revive = "rmq_sys_REVIVE_LOG_C"
    ends = {(revive, 0): 1200, (revive, 1): 3, (revive, 2): 5, ("rmq_sys_wheel_timer", 0): 9}
    # The offset of the last record that was dealt with.
    progress = {(revive, 0): 199, (revive, 1): 2}
    first, second = open_pops(ends, lambda topic, queue_id: progress.get((topic, queue_id), -1))
    assert first.startswith("queue 0 of rmq_sys_REVIVE_LOG_C has 1,000 records of messages that consumers popped")
    assert second.startswith("queue 2 of rmq_sys_REVIVE_LOG_C has 5 records")
