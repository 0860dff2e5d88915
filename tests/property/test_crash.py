"""A crash at every write, sync and rename of a run of operations, with whatever a power loss may take.

The short form takes some of the crash points, ``--soak`` all of them with more seeds.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.crash_points import crash_at_points, crash_everywhere
from tests.support.crash_script import CrashScript, Promised
from tests.support.ordered_threads import OrderedThreadsScript
from tests.support.recording_file_system import Disk, Loss

OPERATIONS = 200
FLUSH_TYPES = ["SYNC_FLUSH", "ASYNC_FLUSH"]
pytestmark = pytest.mark.usefixtures("no_flush_by_itself")


async def check_all(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Check crashes at each ``step``-th point of a run of the script; gives how many."""
    script = OrderedThreadsScript(folder / "live", flush_disk_type, seed)
    checked = await crash_everywhere(script, folder, Promised(), operations=OPERATIONS, step=step)
    assert not script.refused
    return checked


async def crash_in_the_start(
    folder: Path, script: CrashScript, crashed: Path, promised: Promised, loss: Loss, step: int
) -> int:
    """Start on what a crash left and check crashes at each ``step``-th point of that start; gives how many."""
    journal, there = await script.start_on(crashed)
    disk, checked = Disk(), 0
    for number, event in enumerate(journal):
        disk.apply(event)
        if number < there or number % step:
            continue
        again = list(Loss)[number // step % len(Loss)]
        image = folder / f"again-{number}"
        disk.image(image, again, seed=number)
        try:
            await script.check(image, promised, loss if again is Loss.NOTHING else again)
        except BaseException as error:
            error.add_note(f"crashed again after event {number} {event[:5]}, {again}: {image}")
            raise
        shutil.rmtree(image)
        checked += 1
    return checked


async def crash_twice(folder: Path, flush_disk_type: str, seed: int, step: int) -> int:
    """Run the script, crash at each ``step``-th point and at some points of the starts that follow; gives how many."""
    script = CrashScript(folder / "live", flush_disk_type, seed)
    await script.run(OPERATIONS)
    await script.stop()
    disk, promised, checked = Disk(), Promised(), 0
    chance = random.Random(seed)
    for number, event in enumerate(script.journal):
        disk.apply(event)
        if event.kind == "mark":
            promised.take(event.mark)
        elif number % step == seed % step:
            loss, image = chance.choice(list(Loss)), folder / f"crash-{number}"
            disk.image(image, loss, seed=number)
            try:
                checked += await crash_in_the_start(folder, script, image, promised, loss, chance.randint(1, 40))
            except BaseException as error:
                error.add_note(f"{flush_disk_type}, seed {seed}, crash after event {number} {event[:5]}, {loss}")
                raise
            shutil.rmtree(image)
    return checked


def without_the_index(store: Path) -> None:
    """All index files are lost."""
    shutil.rmtree(store / "index")


def without_the_queues(store: Path) -> None:
    """All queues are lost."""
    shutil.rmtree(store / "consumequeue")


def without_a_queue(store: Path) -> None:
    """One queue is lost."""
    shutil.rmtree(store / "consumequeue" / "A" / "1")


def with_a_queue_file_cut_short(store: Path) -> None:
    """The first file of a queue lost its end."""
    with min((store / "consumequeue" / "B" / "0").iterdir()).open("r+b") as file:
        file.truncate(20)


def with_a_damaged_index_file(store: Path) -> None:
    """The first index file has a wrong size."""
    with min((store / "index").iterdir()).open("r+b") as file:
        file.truncate(20)


@pytest.mark.long
@pytest.mark.proves("When the store is opened", "5. rebuilt")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "damage",
    [without_the_index, without_the_queues, without_a_queue, with_a_queue_file_cut_short, with_a_damaged_index_file],
)
async def test_a_crash_while_queues_and_index_are_rebuilt(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Also when they were lost where they are known to be on disk."""
    script = CrashScript(tmp_path / "live", "SYNC_FLUSH", seed=3)
    await script.run(OPERATIONS)
    await script.stop()
    disk, promised, image = Disk(), Promised(), tmp_path / "stopped"
    for event in script.journal:
        disk.apply(event)
        promised.take(event.mark)
    disk.image(image, Loss.NOTHING, seed=0)
    damage(image / "store")
    assert await crash_in_the_start(tmp_path, script, image, promised, Loss.NOTHING, step=3) > 5


@pytest.mark.long
@pytest.mark.proves("When a sync fails", "files after an unclean stop")
@pytest.mark.proves("When the store is opened", "a crash of the start itself")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_during_recovery(tmp_path: Path, flush_disk_type: str) -> None:
    assert await crash_twice(tmp_path, flush_disk_type, seed=2, step=97) > 10


@pytest.mark.long
@pytest.mark.proves("What is promised", "power loss, at any point")
@pytest.mark.proves("What is promised", "a new message and the committed offsets")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_loses_nothing_promised(tmp_path: Path, flush_disk_type: str, seed: int) -> None:
    assert await check_all(tmp_path, flush_disk_type, seed, step=17) > 50


@pytest.mark.long
@pytest.mark.proves("The steps of a message", "5. checkpoint")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_flush_during_a_dispatch_covers_only_entered_messages(tmp_path: Path, flush_disk_type: str) -> None:
    """No message that a queue flush passed over is lost behind a checkpoint, and its queue offset is not used again.

    Without an index, whose checkpoint would have the message entered again.
    """
    script = OrderedThreadsScript(tmp_path / "live", flush_disk_type, seed=5, message_index_enable=False)
    await script.run_only(script.flush_queues_amid_dispatch)

    assert await crash_at_points(script, tmp_path, Promised(), losses=[Loss.ALL]) > 40


@pytest.mark.long
@pytest.mark.proves("The steps of a message", "5. checkpoint")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_clock_set_back_loses_nothing_promised(tmp_path: Path, flush_disk_type: str) -> None:
    script = OrderedThreadsScript(tmp_path / "live", flush_disk_type, seed=5, message_index_enable=False)
    await script.run_only(script.set_clock_back)

    assert await crash_at_points(script, tmp_path, Promised(), losses=[Loss.ALL]) > 40


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("flush_disk_type", FLUSH_TYPES)
async def test_a_crash_at_any_point_loses_nothing_promised(tmp_path: Path, flush_disk_type: str, seed: int) -> None:
    checked = 0
    for first in range(len(Loss)):
        checked += await check_all(tmp_path / str(first), flush_disk_type, seed * 4 + first, step=1)
        checked += await crash_twice(tmp_path / f"twice-{first}", flush_disk_type, seed * 4 + first, step=11)
    print(f"{flush_disk_type}, seed {seed}: {checked} crashes")
