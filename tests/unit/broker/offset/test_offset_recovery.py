from collections.abc import Collection
from pathlib import Path

import pytest

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_recovery import OffsetRecovery
from rocketbroker.common.errors import StoreError
from tests.support.fakes import FakeClock
from tests.support.stores import crash_copy, make_store, message


@pytest.mark.parametrize("clean", [True, False])
async def test_offsets_behind_the_end_are_set_back_however_the_last_broker_ended(tmp_path: Path, caplog, clean: bool):
    store = make_store(tmp_path / "store")
    await store.start()
    for queue_id in (0, 0, 0, 1):
        store.appender.put_message(message(queue_id=queue_id))
    store.appender.dispatch()
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    store = make_store(tmp_path / ("store" if clean else "killed"))
    await store.start()
    persisted: list[object] = []
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock(), persisted.append)
    for queue_id, offset in ((0, 5), (1, 1), (2, 7)):
        offsets.commit("G", "Topic", queue_id, offset)
    offsets.commit_pull("B", "Topic", 0, 4)
    offsets.flush()
    persisted.clear()

    drained: list[int] = []

    async def drain() -> Collection[Path]:
        drained.append(len(persisted))
        return ()

    await OffsetRecovery(offsets, store.queues, drain).start()

    assert offsets.offsets_of("G", "Topic") == {0: 3, 1: 1, 2: 0}
    assert offsets.query_pull("B", "Topic", 0) == 3
    assert drained == [1], "it is on disk before anything else comes"
    told = [record.getMessage() for record in caplog.records if "is set back" in record.getMessage()]
    assert len(told) == 3
    assert "the offset of group G in topic Topic, queue 0, is set back from 5 to 3" in told[0]
    await store.stop()


async def test_a_disk_that_refuses_the_table_ends_the_start_and_the_next_one_sets_back(tmp_path: Path):
    store = make_store(tmp_path / "store")
    await store.start()
    crash_copy(tmp_path / "store", tmp_path / "killed")
    await store.stop()
    store = make_store(tmp_path / "killed")
    await store.start()
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())
    offsets.commit("G", "Topic", 0, 5)

    async def drain() -> Collection[Path]:
        return {offsets.path}

    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be written, where 1 offsets had to be set back"):
        await OffsetRecovery(offsets, store.queues, drain).start()
    await store.stop()

    again = make_store(tmp_path / "killed")
    await again.start()
    offsets.commit("G", "Topic", 0, 5)
    await OffsetRecovery(offsets, again.queues, nothing_to_wait_for).start()
    assert offsets.query("G", "Topic", 0) == 0
    await again.stop()


async def nothing_to_wait_for() -> Collection[Path]:
    return ()
