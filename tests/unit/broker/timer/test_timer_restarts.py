"""Messages of the timer after stops, kills and disk errors, and in a store of Apache's."""

import pytest

from rocketbroker.broker.timer.timer_delivery import BATCH
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.put_message import Acknowledgement, PutMessageStatus
from tests.support.golden_store import unpack
from tests.support.stores import crash_copy, make_store, read_queue
from tests.support.timers import Timer
from tests.support.waiting import until


async def test_a_restart_in_order_loses_nothing_and_repeats_nothing(timer, again, clock):
    for number in range(BATCH + 10):
        timer.put(b"%d" % number, TIMER_DELAY_SEC=5)
    timer.put(b"next", TIMER_DELAY_SEC=8)
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    await timer.run()
    clock.advance(6)
    # In the midst of a slot.
    await timer.service.advance()
    assert 0 < len(timer.bodies()) < BATCH + 10
    await timer.stop()
    timer = await again()
    timer.put(b"new", TIMER_DELAY_SEC=10)
    clock.advance(60)
    await timer.run()
    clock.advance(7200)
    await timer.run()
    await timer.stop()
    timer = await again()
    await timer.run()
    assert timer.bodies() == [b"%d" % number for number in range(BATCH + 10)] + [b"next", b"new", b"late"]


@pytest.mark.proves("When the store is opened", "6. timer messages")
async def test_a_kill_loses_nothing(timer, again, clock):
    timer.put(b"first", TIMER_DELAY_SEC=5)
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    await timer.run()
    await timer.service.write()
    timer.put(b"second", TIMER_DELAY_SEC=5)
    timer.put(b"later", TIMER_DELAY_SEC=9000)
    clock.advance(7)
    await timer.run()
    # What it delivered since the last write is not known to the next one.
    timer = await again()
    clock.advance(9000)
    await timer.run()
    assert timer.bodies() == [b"first", b"second", b"first", b"second", b"late", b"later"]


@pytest.mark.proves("When the store is opened", "6. timer messages")
async def test_progress_goes_to_disk_after_the_copies(store, timer, again, clock):
    timer.put(TIMER_DELAY_SEC=1)
    await timer.service.write()
    clock.advance(3)
    await timer.run()
    timer.service.progress.flush()
    timer_after_power_loss = await again()
    assert timer_after_power_loss.service.progress.delivered == ()
    store.flusher.flush()
    timer.service.progress.flush()
    assert (await again()).service.progress.delivered != ()


@pytest.mark.proves("When the store is opened", "6. timer messages")
@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
async def test_a_damaged_slot_file_is_rebuilt_from_the_queue(timer, again, clock, caplog, damage):
    timer.put(b"soon", TIMER_DELAY_SEC=5)
    timer.put(b"late", TIMER_DELAY_SEC=7200)
    timer.put(b"too", TIMER_DELAY_SEC=7200)
    clock.advance(7)
    await timer.run()
    await timer.stop()
    folder = timer.config.config_dir.parent / "timerslots"
    path = folder / timer.slot_files[-1]
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.write_bytes(bytes(20) + path.read_bytes()[20:])
    timer = await again()
    assert "sound entries instead of 2; the timer's queue is read again from its start" in caplog.text
    clock.advance(7200)
    await timer.run()
    assert timer.bodies() == [b"soon", b"late", b"too"]


@pytest.mark.proves("When the store is opened", "6. timer messages")
async def test_entries_that_a_killed_process_wrote_beyond_its_progress_do_not_count(timer, again, clock):
    timer.put(b"one", TIMER_DELAY_SEC=7200)
    await timer.run()
    await timer.service.write()
    before = timer.path.read_bytes()
    timer.put(b"two", TIMER_DELAY_SEC=7200)
    await timer.run()
    await timer.service.write()
    timer.path.write_bytes(before)
    timer = await again()
    clock.advance(7202)
    await timer.run()
    assert timer.bodies() == [b"one", b"two"]


@pytest.mark.proves("When the store is opened", "6. timer messages")
async def test_files_whose_messages_are_delivered_are_removed(store, timer, again, clock):
    timer.put(b"1", TIMER_DELAY_SEC=1200)
    timer.put(b"2", TIMER_DELAY_SEC=86_400)
    await timer.run()
    await timer.service.write()
    await timer.service.remove_delivered_files()
    assert len(timer.slot_files) == 2
    clock.advance(1202)
    await timer.run()
    await timer.service.remove_delivered_files()
    assert len(timer.slot_files) == 2, "their copies are not on disk"
    store.flusher.flush()
    await timer.service.remove_delivered_files()
    assert len(timer.slot_files) == 2, "its last slots are to come"
    clock.advance(600)
    await timer.service.remove_delivered_files()
    assert len(timer.slot_files) == 1
    timer = await again()
    clock.advance(86_400)
    await timer.run()
    assert timer.bodies() == [b"1", b"2"]


@pytest.mark.parametrize(("read_ms_before", "wanted"), [(0, 0), (80_000_000, 2)])
async def test_a_store_of_apache_is_gone_on_with_where_it_ended(tmp_path, clock, read_ms_before, wanted):
    root = unpack("clean", tmp_path / "golden")
    check = root / "config" / "timercheck"
    data = check.read_bytes()
    check.write_bytes((int.from_bytes(data[:8], "big") - read_ms_before).to_bytes(8, "big") + data[8:])
    store = make_store(root, clock)
    await store.start()
    before = [len(read_queue(store, *queue)) for queue in (("StDelay", 0), ("rmq_sys_REVIVE_LOG_GoldenCluster", 0))]
    timer = await Timer(store, clock).load()
    clock.advance(86_400)
    await timer.run()
    after = [len(read_queue(store, *queue)) for queue in (("StDelay", 0), ("rmq_sys_REVIVE_LOG_GoldenCluster", 0))]
    assert sum(after) - sum(before) == wanted
    await store.stop()


async def test_a_copy_of_the_files_of_a_killed_broker_delivers_all(tmp_path, store, timer, clock):
    timer.put(b"soon", TIMER_DELAY_SEC=60)
    timer.put(b"late", TIMER_DELAY_SEC=86_400)
    await timer.run()
    await timer.service.write()
    timer.put(b"too", TIMER_DELAY_SEC=86_400)
    await timer.run()
    killed = make_store(
        crash_copy(tmp_path / "store", tmp_path / "killed"),
        clock,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
    )
    await killed.start()
    after = await Timer(killed, clock).load()
    clock.advance(86_402)
    await after.run()
    assert after.bodies() == [b"soon", b"late", b"too"]
    await killed.stop()


async def test_that_nothing_waits_any_more_is_no_lost_table(timer, again, clock, caplog):
    timer.put(TIMER_DELAY_SEC=1200)
    await timer.stop()
    timer.path.with_name("timerProgress.json.bak").write_bytes(timer.path.read_bytes())
    timer = await again()
    clock.advance(1900)
    await timer.run()
    timer.store.flusher.flush()
    await timer.service.remove_delivered_files()
    await timer.stop()
    assert b'"slotEntries":{}' in timer.path.read_bytes()
    await again()
    assert "empty" not in caplog.text


async def test_slot_files_that_the_disk_refuses_are_written_by_the_next_try(timer, again, clock, monkeypatch):
    timer.put(b"one", TIMER_DELAY_SEC=7200)
    await timer.run()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rocketbroker.broker.timer.timer_wheel.SlotFiles._append", refuse)
        with pytest.raises(OSError, match="No space"):
            await timer.service.write()
    assert timer.service.progress.file.queue_offset == 0
    timer.put(b"two", TIMER_DELAY_SEC=7200)
    await timer.stop()
    timer = await again()
    assert timer.service.progress.file.queue_offset == 1, "messages stored after the last look are read again"
    clock.advance(7202)
    await timer.run()
    assert timer.bodies() == [b"one", b"two"]


async def test_a_log_that_cannot_be_synced_leaves_the_slot_files_as_they_are(timer, store, monkeypatch):
    async def refuse():
        return Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the CommitLog could not be synced")

    timer.put(b"one", TIMER_DELAY_SEC=7200)
    await timer.run()
    with monkeypatch.context() as patch:
        patch.setattr(store.flusher, "sync", refuse)
        with pytest.raises(StoreError, match="could not be synced"):
            await timer.service.write()
    assert timer.slot_files == []
    await timer.service.write()
    assert len(timer.slot_files) == 1


async def test_the_service_can_be_stopped_and_started_again(timer, store):
    timer.put(b"one", TIMER_DELAY_SEC=1)
    timer.put(b"two", TIMER_DELAY_SEC=20)
    timer.clock.advance(3)
    await timer.service.start()
    await until(lambda: timer.bodies() == [b"one"])
    await timer.service.stop()
    timer.put(b"three", TIMER_DELAY_SEC=10)
    timer.clock.advance(30)

    await timer.service.start()

    await until(lambda: timer.bodies() == [b"one", b"three", b"two"])
    await timer.service.stop()
