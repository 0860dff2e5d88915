"""Where the CPU time of a send goes: microseconds a message by step, in one process and without network.

    bench/run profile_send [--size 128] [--frames 16] [--bursts 200]

Each step runs alone over the same requests in short bursts; the least CPU time of a burst counts, since everything else
that the machine does can only add to it.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Annotated, Any

import typer

from bench.machine import commit
from bench.send_path import SendPath, body_of, header_of, send_frame, send_path
from rocketbroker.codec.remoting.hot_responses import region_suffix, send_response
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.store.index_service import BATCH_MESSAGES
from rocketbroker.store.put_message import MessageExtBrokerInner

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

STEPS = {
    "transport": "the rest: frames parted, handlers looked up, answers joined and handed over",
    "decode": "JSON header to typed struct",
    "route": "topic looked up and checked",
    "process": "properties looked through and completed, message made, statistics",
    "append": "record made and written into the CommitLog's mapped file",
    "dispatch": "entry written into the ConsumeQueue, keys noted for the index",
    "index": "keys hashed and entered into the IndexFile, in batches",
    "answer": "response made from its template",
}


class Burst:
    """Requests that go through the path once whole and once step by step.

    Args:
        path: the parts.
        reads: the frames of each read event.
    """

    def __init__(self, path: SendPath, reads: list[list[bytes]]) -> None:
        self._path = path
        self._reads = reads
        self._frames = [frame for frames in reads for frame in frames]
        self._headers = [header_of(frame) for frame in self._frames]

    def timings(self) -> dict[str, float]:
        """CPU microseconds a message of each step, and of the whole."""
        count = len(self._frames)
        commands = self._decoded()
        messages = self._captured(commands)
        timed = {
            "whole": _cpu_of(self._whole),
            "decode": _cpu_of(self._decode),
            "route": _cpu_of(lambda: self._route(commands)),
            "processor": _cpu_of(lambda: self._process(commands)),
        }
        self._catch_up()
        timed["append"], timed["dispatch"] = self._append_and_dispatch(messages)
        timed["index"] = _cpu_of(self._flush_index)
        timed["answer"] = _cpu_of(lambda: self._answer(commands))
        return {step: seconds / count * 1e6 for step, seconds in timed.items()}

    def _decoded(self) -> list[Command]:
        commands = []
        for header, frame in zip(self._headers, self._frames, strict=True):
            command = self._path.route.decode_json(header)
            command.body = body_of(frame)
            commands.append(command)
        return commands

    def _captured(self, commands: list[Command]) -> list[MessageExtBrokerInner]:
        """The messages that the processor makes of the requests."""
        messages: list[MessageExtBrokerInner] = []
        store = self._path.store
        put = store.put_message

        def capture(message: MessageExtBrokerInner) -> Any:
            messages.append(message)
            return put(message)

        store.put_message = capture
        try:
            self._process(commands)
        finally:
            store.put_message = put
        self._catch_up()
        return messages

    def _catch_up(self) -> None:
        self._path.store.dispatch()
        self._flush_index()

    def _whole(self) -> None:
        connection = self._path.connection
        for frames in self._reads:
            data = memoryview(b"".join(frames))
            while data:
                room = connection.get_buffer(-1)
                part, data = data[: len(room)], data[len(room) :]
                room[: len(part)] = part  # stands for what recv copies
                connection.buffer_updated(len(part))
        self._flush_index()

    def _decode(self) -> None:
        decode = self._path.route.decode_json
        for header in self._headers:
            decode(header)

    def _route(self, commands: list[Command]) -> None:
        find, address = self._path.targets.find, self._path.connection.remote_address
        for command in commands:
            find(command.header, address)

    def _process(self, commands: list[Command]) -> None:
        process, connection = self._path.route.process, self._path.connection
        for command in commands:
            process(connection, command)

    def _append_and_dispatch(self, messages: list[MessageExtBrokerInner]) -> tuple[float, float]:
        """Dispatch follows the messages of each read event, as it does when they come from the network."""
        put, dispatch = self._path.store.put_message, self._path.store.dispatch
        appending = dispatching = 0.0
        waiting = iter(messages)
        for frames in self._reads:
            begun = thread_time()
            for message in (next(waiting) for _ in frames):
                put(message)
            appended = thread_time()
            dispatch()
            appending += appended - begun
            dispatching += thread_time() - appended
        return appending, dispatching

    def _flush_index(self) -> None:
        index_service = self._path.store.index_service
        assert index_service is not None
        index_service.flush()

    def _answer(self, commands: list[Command]) -> None:
        suffix = region_suffix("DefaultRegion", trace_on=True)
        for command in commands:
            send_response(command.opaque, 3, 1_000_000, b"7F00000100002A9F%016X" % 1_000_000, b"7F" * 16, suffix)


def _cpu_of(work: Callable[[], None]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun


def parted(least: dict[str, float]) -> dict[str, float]:
    """The steps in the order of ``STEPS``, each without those that it calls, and the whole."""
    steps = {step: least[step] for step in STEPS if step in least}
    steps["process"] = least["processor"] - least["route"] - least["append"] - least["answer"]
    steps["transport"] = least["whole"] - least["decode"] - least["processor"] - least["dispatch"] - least["index"]
    return {step: steps[step] for step in STEPS} | {"whole": least["whole"]}


def table(steps: dict[str, float]) -> Iterator[str]:
    """Markdown: step, microseconds, share, what it does."""
    yield "| step | µs a message | share | what it does |"
    yield "|---|---:|---:|---|"
    for step, microseconds in steps.items():
        share = microseconds / steps["whole"]
        yield f"| {step} | {microseconds:.2f} | {share:.0%} | {STEPS.get(step, 'one message, all steps')} |"


async def profile(root: Path, size: int, frames: int, bursts: int) -> dict[str, float]:
    """The least time of each step over so many bursts, which hold as many messages as the index takes at once."""
    reads = BATCH_MESSAGES // frames - 1  # one more would have a dispatch flush the index
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
    """Print what each step of a send costs. The event loop and the system calls come on top, in a broker."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-profile-", dir=folder) as root:
        steps = asyncio.run(profile(Path(root), size, frames, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {frames} requests a read, {bursts} bursts\n")
    print("\n".join(table(steps)))


def main() -> int:
    """Run the command; gives its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
