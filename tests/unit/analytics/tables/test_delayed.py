import logging
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.tables.delayed import TimerState, slots_of
from rocketbroker.codec.storefile.timer_slots import slot_of
from tests.support.commit_log_writer import overwrite
from tests.support.fakes import FakeClock
from tests.support.golden_store import unpack
from tests.support.slow_tables import slow_waiting_levels
from tests.support.stores import make_store
from tests.support.table_rows import named, table_rows
from tests.support.timers import Timer

DAY_MS = 86_400_000


def test_slots_of_many_are_those_of_each():
    chance = random.Random(1)
    stored = [1_795_255_168_558 + chance.randrange(DAY_MS) for _ in range(2_000)]
    out = [at + chance.randrange(-5_000, 4 * DAY_MS) for at in stored]
    out += [at + ahead for at in stored[:20] for ahead in (0, 2 * DAY_MS - 1000, 2 * DAY_MS, 2 * DAY_MS + 999)]
    stored += [at for at in stored[:20] for _ in range(4)]
    for precision_ms, window_ms in ((1000, 2 * DAY_MS), (100, 200), (500, 7 * 500), (1, 1 << 62)):
        state = TimerState((), precision_ms, window_ms)
        found = slots_of(np.array(out), np.array(stored), state).tolist()
        assert found == [slot_of(*each, precision_ms, window_ms) for each in zip(out, stored, strict=True)]


NOW_MS = 1_795_255_168_558
DAY_S = 86_400


def levels(root: Path, selection: Selection = Selection()):  # noqa: B008 - frozen
    return [row for row in table_rows(named(root), "delayed", selection) if row["kind"] == "level"]


# -- delay levels


def set_delivered(root: Path, offsets: dict[int, int]) -> None:
    table = ",".join(f"{level}:{offset}" for level, offset in offsets.items())
    (root / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{{table}}}}}')


def test_recorded_levels_equal_the_slow_reader(recorded):
    assert levels(recorded) == slow_waiting_levels(recorded, "broker-a")


@pytest.mark.parametrize("offsets", [{}, {1: 2}, {1: 3, 3: 1}, {1: 100, 3: 100}])
def test_waiting_messages_are_those_beyond_the_progress(tmp_path, offsets):
    root = unpack("clean", tmp_path)
    set_delivered(root, offsets)
    expected = slow_waiting_levels(root, "broker-a")
    assert levels(root) == expected
    assert len(expected) == max(7 - offsets.get(1, 0), 0) + max(2 - offsets.get(3, 0), 0)


def test_they_are_chosen_by_what_they_are_for(tmp_path):
    root = unpack("clean", tmp_path)
    set_delivered(root, {})
    expected = slow_waiting_levels(root, "broker-a")
    for selection, holds in (
        (Selection(topics={"StDelay"}), lambda row: row["real_topic"] == "StDelay"),
        (Selection(keys={"kpend1"}), lambda row: row["keys"] == "kpend1"),
        (Selection(since_ms=NOW_MS + 1_000), lambda row: row["store_timestamp"] >= NOW_MS + 1_000),
    ):
        wanted = [row for row in expected if holds(row)]
        assert levels(root, selection) == wanted
        assert 0 < len(wanted) < len(expected)


def test_one_whose_record_is_damaged_is_known_to_be_due(tmp_path, caplog):
    root = unpack("clean", tmp_path)
    set_delivered(root, {1: 6, 3: 0})
    waiting = slow_waiting_levels(root, "broker-a")
    overwrite(root / "commitlog" / f"{65536:020d}", waiting[0]["physical_offset"] - 65536 + 4, b"????")
    with caplog.at_level(logging.WARNING):
        rows = levels(root)
    (lost,) = [row for row in rows if row["real_topic"] is None]
    assert (lost["due_timestamp"], lost["queue_offset"], lost["store_timestamp"]) == (
        waiting[0]["due_timestamp"],
        6,
        None,
    )
    assert len(rows) == 3
    assert "point to no readable record" in caplog.text


def test_without_progress_all_waits_and_that_is_reported(tmp_path, caplog):
    root = unpack("clean", tmp_path)
    for path in (root / "config").glob("delayOffset.json*"):
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert len(levels(root)) == 9
    assert "delayOffset.json and its backup are missing" in caplog.text


# -- timer messages


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
async def timer(tmp_path, clock):
    store = make_store(
        tmp_path / "store", clock, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000
    )
    await store.start()
    made = await Timer(store, clock).load()
    yield made
    await store.stop()


def waiting(timer: Timer) -> list[tuple[str, int, bool]]:
    """Key, due time and whether it is cancelled, of each timer message that waits."""
    rows = table_rows(timer.store.config.store_path_root_dir, "delayed")
    assert all(row["kind"] == "timer" and row["delay_level"] is None for row in rows)
    return [(row["keys"], row["due_timestamp"], row["cancelled"]) for row in rows]


async def settle(timer: Timer) -> None:
    """Deliver what is due, and have the progress written."""
    await timer.run()
    await timer.service.write()


async def test_timer_messages_wait_till_they_are_delivered(timer, clock):
    for number, delay_s in enumerate((5, 7200, 2)):
        timer.put(b"x", KEYS=f"k{number}", TIMER_DELAY_SEC=delay_s)
    slots = [(NOW_MS + delay_s * 1000) // 1000 * 1000 for delay_s in (5, 7200, 2)]
    await settle(timer)
    assert waiting(timer) == [("k0", slots[0], False), ("k1", slots[1], False), ("k2", slots[2], False)]
    clock.advance(4)
    await settle(timer)
    assert waiting(timer) == [("k0", slots[0], False), ("k1", slots[1], False)]
    clock.advance(4)
    await settle(timer)
    assert waiting(timer) == [("k1", slots[1], False)]
    (row,) = table_rows(timer.store.config.store_path_root_dir, "delayed")
    assert (row["real_topic"], row["real_queue_id"], row["topic"], row["reconsume_times"]) == (
        "T", 1, "rmq_sys_wheel_timer", 2,
    )  # fmt: skip
    clock.advance(7200)
    await settle(timer)
    assert waiting(timer) == []


async def test_one_far_ahead_waits_once_though_it_is_stored_again_on_the_way(timer, clock):
    timer.put(b"x", KEYS="far", TIMER_DELAY_SEC=3 * DAY_S)
    await settle(timer)
    due = (NOW_MS + 3 * DAY_S * 1000) // 1000 * 1000
    assert waiting(timer) == [("far", due, False)]
    clock.advance(2 * DAY_S + 10)
    await settle(timer)
    assert timer.bodies() == []
    assert waiting(timer) == [("far", due, False)]
    (row,) = table_rows(timer.store.config.store_path_root_dir, "delayed")
    assert row["queue_offset"] == 1


async def test_a_cancelled_one_says_so_and_what_cancels_is_no_row(timer, clock):
    for key in ("a", "b", "c"):
        timer.put(b"x", UNIQ_KEY=f"U{key}", KEYS=key, TIMER_DELAY_SEC=600)
    timer.put(b"", TIMER_DEL_UNIQKEY="T+Ub", TIMER_DELAY_SEC=600)
    timer.put(b"", TIMER_DEL_UNIQKEY="Uc", TIMER_DELAY_SEC=600)
    timer.put(b"", TIMER_DEL_UNIQKEY="Ua", TIMER_DELAY_SEC=900)  # of another slot: cancels nothing
    await settle(timer)
    assert [(key, cancelled) for key, _, cancelled in waiting(timer)] == [("a", False), ("b", True), ("c", True)]
    clock.advance(602)
    await settle(timer)
    assert timer.bodies() == [b"x"]
    assert waiting(timer) == []


def test_what_apache_rocketmq_delivered_does_not_wait(recorded):
    rows = table_rows(named(recorded), "delayed")
    assert [row for row in rows if row["kind"] == "timer"] == []


def test_what_its_progress_has_not_come_to_waits(tmp_path, caplog):
    root = shutil.copytree(unpack("clean", tmp_path), tmp_path / "copy")
    overwrite(root / "config" / "timercheck", 0, (1_795_256_000_000).to_bytes(8, "big"))  # lastReadTimeMs
    rows = [row for row in table_rows(named(root), "delayed") if row["kind"] == "timer"]
    assert [(row["queue_offset"], row["due_timestamp"], row["tags"]) for row in rows] == [(1, 1_795_256_250_000, "ck")]
    (root / "config" / "timercheck").unlink()
    with caplog.at_level(logging.WARNING):
        rows = [row for row in table_rows(named(root), "delayed") if row["kind"] == "timer"]
    assert [row["queue_offset"] for row in rows] == [0, 1]
    assert "timercheck is missing; all timer messages of the store count as waiting" in caplog.text
