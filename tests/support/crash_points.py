"""Crashes at the points of a journal, each of them an image of what may be on disk then."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.support.recording_file_system import Disk, Event, Loss


class Promises(Protocol):
    """What the marks up to a point say."""

    def take(self, mark: object) -> None:
        """Go on by one mark."""


async def check_crashes(
    folder: Path,
    journal: Sequence[Event],
    promised: Promises,
    check: Callable[[Path, Loss, int], Awaitable[object]],
    *,
    seed: int,
    step: int,
    what: str,
) -> int:
    """Check crashes at each ``step``-th point of a journal; gives how many.

    Args:
        folder: where images are made, and removed.
        journal: what was written, and the marks.
        promised: takes the marks as they are passed.
        check: holds an image against them; is told what was lost and the number of the point.
        seed: of the run.
        step: how many points apart.
        what: begins the note of an error.
    """
    disk, checked = Disk(), 0
    for number, event in enumerate(journal):
        disk.apply(event)
        if event.kind == "mark":
            promised.take(event.mark)
        elif number % step == seed % step:
            loss = list(Loss)[checked % len(Loss)]
            image = folder / f"crash-{number}"
            disk.image(image, loss, seed=number)
            try:
                await check(image, loss, number)
            except BaseException as error:
                error.add_note(f"{what}, seed {seed}, crash after event {number} {event[:5]}, {loss}: {image}")
                raise
            shutil.rmtree(image)
            checked += 1
    return checked
