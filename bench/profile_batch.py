"""CPU profile of batches and of pulls: microseconds a message by step, in one process and without network.

    bench/run profile_batch [--count 32] [--size 128] [--bursts 200]

A burst is as many batches as the index takes at a time, four times seven batches that come by one read event, and one
pull of 32 messages from each queue. The least CPU time of a burst counts, since other work of the machine can only add
to it.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Annotated

import typer

from bench.machine import commit
from bench.send_path import QUEUES, TOPIC, SendPath, batch_frame, body_of, header_of, pull_frame, read_event, send_path
from rocketbroker.codec.message.message_batch import BatchParts, split_batch
from rocketbroker.codec.message.message_properties import find_properties_of_batch
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner
from rocketbroker.store.index.index_service import BATCH_MESSAGES

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_PULLED = 32
_TOGETHER = 7
_HOST = bytes(8)

STEPS = {
    "decode": "JSON header to typed struct",
    "split": "split the body into columns",
    "encode": "make the records, with their checksums",
    "properties": "find tags and keys",
    "store": "write the records, enter them into the queue, note keys for the index",
    "process": "check the batch, count it, answer with its ids",
    "index": "hash keys and enter them into the IndexFile, in batches",
}


def timings(path: SendPath, frames: list[bytes], count: int) -> dict[str, float]:
    """Measure the CPU time of each step of the batches, in µs a message; ``process`` and ``store`` include others."""
    route = Route(RequestCode.SEND_BATCH_MESSAGE, path.route.process, SendMessageRequestHeaderV2)
    index_service = path.store.index_service
    assert index_service is not None
    commands = [_decoded(route, frame) for frame in frames]
    message = MessageExtBrokerInner(topic=TOPIC, queue_id=0, body=b"", born_host=_HOST)
    batches: list[BatchParts] = []
    steps = {
        "decode": lambda: [route.decode_json(header_of(frame)) for frame in frames],
        "split": lambda: batches.extend(split_batch(command.body) for command in commands),
        "encode": lambda: [AppendBatch(message, parts).encode(0, 0, 0, _HOST) for parts in batches],
        "properties": lambda: [
            find_properties_of_batch(parts.properties, parts.lengths and parts.lengths[1]) for parts in batches
        ],
        "store": lambda: [path.store.appender.put_messages(message, parts) for parts in batches],
        "process": lambda: [route.process(path.connection, command) for command in commands],
        "index": index_service.flush,
    }
    messages = {"index": 2 * count}  # those of ``store`` and of ``process``
    return {step: _cpu_of(work) / len(frames) / messages.get(step, count) * 1e6 for step, work in steps.items()}


def together_timing(path: SendPath, frames: list[bytes], count: int) -> float:
    """Measure the CPU time of batches by sevens, from the bytes read to the answers and the index, in µs a message."""
    index_service = path.store.index_service
    assert index_service is not None
    events = [b"".join(frames[first : first + _TOGETHER]) for first in range(0, len(frames), _TOGETHER)]

    def handle() -> None:
        for event in events:
            read_event(path.connection, event)
        index_service.flush()

    return _cpu_of(handle) / len(frames) / count * 1e6


def pull_timing(path: SendPath) -> float:
    """Measure the CPU time of one pull from each queue, in µs a message, from the bytes read to the answers."""
    event = b"".join(pull_frame(queue_id, 0, _PULLED) for queue_id in range(QUEUES))
    return _cpu_of(lambda: read_event(path.connection, event)) / QUEUES / _PULLED * 1e6


def parted(least: dict[str, float]) -> dict[str, float]:
    """Return the time of each step without the steps that it includes, in the order of ``STEPS``, and of the whole."""
    steps = dict(least)
    steps["process"] -= least["split"] + least["store"]
    steps["store"] -= least["encode"] + least["properties"]
    return {step: steps[step] for step in STEPS} | {"whole": sum(steps[step] for step in STEPS)}


def table(steps: dict[str, float]) -> Iterator[str]:
    """Return a Markdown table of the steps: microseconds, share and description."""
    yield "| step | µs a message | share | work |"
    yield "|---|---:|---:|---|"
    for step, microseconds in steps.items():
        yield f"| {step} | {microseconds:.2f} | {microseconds / steps['whole']:.0%} | {STEPS.get(step, 'all steps')} |"


async def profile(root: Path, count: int, size: int, bursts: int) -> tuple[dict[str, float], float, float]:
    """Return the least time of each step of a batch, of batches that come together, and of a pull."""
    least: dict[str, float] = {}
    together: list[float] = []
    pulled: list[float] = []
    batches = max((BATCH_MESSAGES - 1) // (2 * count), 1)  # one more would make a dispatch flush the index
    async with send_path(root) as path:
        gc.freeze()  # as the broker does once it is up
        gc.set_threshold(50_000, 50, 50)
        first = [batch_frame(number, count, b"x" * size) for number in range(QUEUES)]
        for _ in range(_PULLED // count + 1):  # enough messages for the pulls
            timings(path, first, count)
        for burst in range(bursts):
            frames = [batch_frame(burst * batches + each, count, b"x" * size) for each in range(batches)]
            for step, microseconds in timings(path, frames, count).items():
                least[step] = min(microseconds, least.get(step, microseconds))
            frames = [batch_frame(burst * batches + each, count, b"x" * size) for each in range(4 * _TOGETHER)]
            together.append(together_timing(path, frames, count))
            pulled.append(pull_timing(path))
    return parted(least), min(together), min(pulled)


def _decoded(route: Route, frame: bytes) -> Command:
    command = route.decode_json(header_of(frame))
    command.body = body_of(frame)
    return command


def _cpu_of(work: Callable[[], object]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun


@app.command()
def profile_batch(
    count: Annotated[int, typer.Option(min=1, max=1000, help="Messages in a batch.")] = 32,
    size: Annotated[int, typer.Option(min=0, max=4096, help="Bytes of each body.")] = 128,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Annotated[
        Path | None, typer.Option("--dir", exists=True, file_okay=False, help="Where the store is put while it lasts.")
    ] = None,
) -> None:
    """Print the cost of each step of a batch and of a pull. A broker adds the event loop and the system calls."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-profile-", dir=folder) as root:
        steps, together, pulled = asyncio.run(profile(Path(root), count, size, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, batches of {count} x {size} B, {bursts} bursts\n")
    print("\n".join(table(steps)))
    print(f"\n{_TOGETHER} batches by one read event, from the bytes read to the answers: {together:.2f} µs a message")
    print(f"a pull of {_PULLED} messages, likewise: {pulled:.2f} µs a message")


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
