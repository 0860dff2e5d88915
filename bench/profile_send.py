"""CPU profile of a send: microseconds a message by step, in one process and without network.

    bench/run profile_send [--size 128] [--frames 16] [--bursts 200]

Each step runs alone over the same requests in short bursts. The least CPU time of a burst counts, since other work of
the machine can only add to it.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench.burst import Burst
from bench.machine import commit
from bench.send_path import send_frame, send_path
from rocketbroker.store.index.index_service import BATCH_MESSAGES

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

STEPS = {
    "transport": "frames parted, handlers looked up, answers joined and handed over",
    "decode": "JSON header to typed struct",
    "route": "topic looked up and checked",
    "process": "properties looked through and completed, message made, statistics",
    "append": "record made and written into the CommitLog's mapped file",
    "dispatch": "entry written into the ConsumeQueue, keys noted for the index",
    "index": "keys hashed and entered into the IndexFile, in batches",
    "answer": "response made from its template",
    "rest": "what the whole takes beyond its steps: each alone finds the processor's caches warm",
}


def parted(least: dict[str, float]) -> dict[str, float]:
    """Return the time of each step in the order of ``STEPS``, without the steps it calls, and of the whole path."""
    steps = {step: least[step] for step in STEPS if step in least}
    steps["process"] = least["processor"] - least["route"] - least["append"] - least["answer"]
    steps["dispatch"] = least["stored"] - least["append"]
    steps["rest"] = least["whole"] - sum(steps.values())
    return {step: steps[step] for step in STEPS} | {"whole": least["whole"]}


def table(steps: dict[str, float]) -> Iterator[str]:
    """Return a Markdown table of the steps: microseconds, share and description."""
    yield "| step | µs a message | share | what it does |"
    yield "|---|---:|---:|---|"
    for step, microseconds in steps.items():
        share = microseconds / steps["whole"]
        yield f"| {step} | {microseconds:.2f} | {share:.0%} | {STEPS.get(step, 'one message, all steps')} |"


async def profile(root: Path, size: int, frames: int, bursts: int) -> dict[str, float]:
    """Return the least time of each step over ``bursts`` bursts, each as long as one batch of the index."""
    reads = BATCH_MESSAGES // frames - 1  # one more event would make a dispatch flush the index
    body = b"x" * size
    least: dict[str, float] = {}
    async with send_path(root) as path:
        gc.freeze()  # as the broker does once it is up
        gc.set_threshold(50_000, 50, 50)
        number = 0
        for _ in range(bursts):
            batches = [[send_frame(number + i * frames + k, body) for k in range(frames)] for i in range(reads)]
            number += reads * frames
            for step, microseconds in Burst(path, batches).timings().items():
                least[step] = min(microseconds, least.get(step, microseconds))
    return parted(least)


@app.command()
def profile_send(
    size: Annotated[int, typer.Option(min=0, max=4 << 20, help="Bytes of each body.")] = 128,
    frames: Annotated[int, typer.Option(min=1, max=64, help="Requests that come by one read event.")] = 16,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Annotated[
        Path | None, typer.Option("--dir", exists=True, file_okay=False, help="Where the store is put while it lasts.")
    ] = None,
) -> None:
    """Print the cost of each step of a send. A broker adds the event loop and the system calls."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-profile-", dir=folder) as root:
        steps = asyncio.run(profile(Path(root), size, frames, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {frames} requests a read, {bursts} bursts\n")
    print("\n".join(table(steps)))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
