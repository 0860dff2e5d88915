"""CPU profile of a send: microseconds a message by step, in one process and without network.

    bench/run profile_send [--size 128] [--frames 25] [--bursts 200]

Each step runs alone over the same requests in short bursts. The least CPU time of a burst counts, since other work of
the machine can only add to it; the median says how much it did.
"""

import asyncio
import gc
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench.burst import Burst
from bench.machine import commit
from bench.send_path import send_frame, send_path
from rocketbroker.store.index.index_service import BATCH_MESSAGES

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

STEPS = {
    "frames": "split frames, match headers with the template, write answers",
    "properties": "decode properties, find tags and keys",
    "process": "find the topic, check, complete properties, count",
    "append": "make the records and write them into the CommitLog's mapped file",
    "dispatch": "enter them into the ConsumeQueues, note keys for the index",
    "index": "hash keys and enter them into the IndexFile, in batches",
    "answer": "make the responses from their template",
    "rest": "the whole minus its steps: each alone finds the caches warm",
}
#: Sums of steps and other ways of the same requests.
BOUNDS = {
    "whole": "one message of a run, all steps",
    "answered": "a broker that answers without storing: frames and answer",
    "stored": "a broker that stores without parsing: append, dispatch and index",
    "alone": "one message that comes by a read event of its own, all steps but the index",
}


def parted(timed: dict[str, float]) -> dict[str, float]:
    """Return the time of each step in the order of ``STEPS``, without the steps it calls, and the bounds."""
    steps = {step: timed[step] for step in STEPS if step in timed}
    steps["process"] = timed["handler"] - timed["properties"] - timed["append"] - timed["answer"]
    steps["dispatch"] = timed["stored"] - timed["append"]
    steps["rest"] = timed["whole"] - sum(steps.values())
    bounds = {
        "whole": timed["whole"],
        "answered": timed["frames"] + timed["answer"],
        "stored": timed["stored"] + timed["index"],
        "alone": timed["alone"],
    }
    return {step: steps[step] for step in STEPS} | bounds


def table(least: dict[str, float], middle: dict[str, float]) -> Iterator[str]:
    """Return a Markdown table of steps and bounds: least and median microseconds, share and description."""
    yield "| step | µs a message | median | share | work |"
    yield "|---|---:|---:|---:|---|"
    for step, work in (STEPS | BOUNDS).items():
        yield f"| {step} | {least[step]:.2f} | {middle[step]:.2f} | {least[step] / least['whole']:.0%} | {work} |"


async def profile(root: Path, size: int, frames: int, bursts: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return least and median times of the steps over ``bursts`` bursts, each as long as one batch of the index."""
    reads = BATCH_MESSAGES // frames - 1  # one more event would make a dispatch flush the index
    body = b"x" * size
    timed: dict[str, list[float]] = defaultdict(list)
    async with send_path(root) as path:
        gc.freeze()  # as the broker does once it is up
        gc.set_threshold(50_000, 50, 50)
        number = 1
        for burst in range(bursts + 1):
            batches = [[send_frame(number + i * frames + k, body) for k in range(frames)] for i in range(reads)]
            number += reads * frames
            for step, microseconds in Burst(path, batches).timings().items():
                if burst:  # the first one makes the queues
                    timed[step].append(microseconds)
    return tuple(parted({step: of(each) for step, each in timed.items()}) for of in (min, median))  # type: ignore[return-value]


@app.command()
def profile_send(
    size: Annotated[int, typer.Option(min=0, max=4 << 20, help="Bytes of each body.")] = 128,
    frames: Annotated[int, typer.Option(min=7, max=64, help="Requests that come by one read event.")] = 25,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Annotated[
        Path | None, typer.Option("--dir", exists=True, file_okay=False, help="Where the store is put while it lasts.")
    ] = None,
) -> None:
    """Print the cost of each step of a send. A broker adds the event loop and the system calls."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-profile-", dir=folder) as root:
        least, middle = asyncio.run(profile(Path(root), size, frames, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {frames} requests a read, {bursts} bursts\n")
    print("\n".join(table(least, middle)))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
