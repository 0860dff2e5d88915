"""Crashes at the points of a journal, each of them an image of what may be on disk then."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.recorded_script import PromisedT, RecordedScript
from tests.support.recording_file_system import Disk, Loss


async def crash_everywhere(
    script: RecordedScript[PromisedT], folder: Path, promised: PromisedT, *, operations: int, step: int
) -> int:
    """Run a script to its end and check crashes at each ``step``-th point of its journal; return how many.

    Args:
        script: has not run yet.
        folder: where images are made, and removed.
        promised: nothing yet; takes the marks as they are passed.
        operations: how many of the script.
        step: how many points apart.
    """
    await script.run(operations)
    await script.stop()
    return await crash_at_points(script, folder, promised, step=step)


async def crash_at_points(
    script: RecordedScript[PromisedT],
    folder: Path,
    promised: PromisedT,
    *,
    step: int = 1,
    losses: Sequence[Loss] = tuple(Loss),
) -> int:
    """Check crashes at each ``step``-th point of the journal of a script that has run, with each loss in turn."""
    disk, checked = Disk(), 0
    for number, event in enumerate(script.journal):
        disk.apply(event)
        if event.kind == "mark":
            promised.take(event.mark)
        elif number % step == script.seed % step:
            loss = losses[checked % len(losses)]
            image = folder / f"crash-{number}"
            disk.image(image, loss, seed=number)
            try:
                await script.check(image, promised, loss, number)
            except BaseException as error:
                error.add_note(f"{script}, crash after event {number} {event[:5]}, {loss}: {image}")
                raise
            shutil.rmtree(image)
            checked += 1
    return checked
