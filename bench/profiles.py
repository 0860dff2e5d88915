"""CPU profiles of sends, batches and pulls: microseconds a message by step, in one process and without network."""

import asyncio
import gc
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Annotated, Any

import typer

from bench.harness import Folder, commit
from bench.send_path import (
    QUEUES,
    TOPIC,
    SendPath,
    batch_frame,
    body_of,
    header_of,
    pull_frame,
    read_event,
    send_frame,
    send_path,
    template_of,
)
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_batch import BatchParts, split_batch
from rocketbroker.codec.message.message_properties import find_properties_of_batch
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.header_template import decode_plain
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.hot_responses import frames, send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, MessageRun, PutMessageResult
from rocketbroker.store.index.index_service import BATCH_MESSAGES
from rocketbroker.transport.connection import RemotingConnection

_Values = list[tuple[bytes, ...]]


class Burst:
    """Requests that go through the whole path once and through each step once.

    Args:
        path: the parts of the send path.
        reads: the frames of each read event, which are a run of their own.
    """

    def __init__(self, path: SendPath, reads: list[list[bytes]]) -> None:
        self._path = path
        self._reads = reads
        template = template_of(path.route, reads[0][0])
        self._command = template.command
        self._runs: list[tuple[_Values, list[ReadableBuffer]]] = [
            (
                [_values(template.fullmatch(header_of(frame))) for frame in frames_],
                [body_of(frame) for frame in frames_],
            )
            for frames_ in reads
        ]

    def timings(self) -> dict[str, float]:
        """Measure the CPU time of each step and of the whole path, in µs a message.

        Some steps include others: ``handler`` calls properties, append and answer; ``stored`` is append and dispatch.
        """
        count = sum(map(len, self._reads))
        runs, results = self._captured()
        timed = {
            "alone": _cpu_of(lambda: self._read(self._path.connection, alone=True)),
            "whole": _cpu_of(self._whole),
            "frames": _cpu_of(lambda: self._read(self._path.bare_connection)),
            "properties": _cpu_of(self._decode),
            "handler": _cpu_of(self._handle),
        }
        self._catch_up()
        timed["append"] = _cpu_of(lambda: self._append(runs))
        self._catch_up()
        timed["stored"] = _cpu_of(lambda: self._append_and_dispatch(runs))
        timed["index"] = _cpu_of(self._flush_index)
        timed["answer"] = _cpu_of(lambda: self._answer(runs, results))
        return {step: seconds / count * 1e6 for step, seconds in timed.items()}

    def _captured(self) -> tuple[list[MessageRun], list[PutMessageResult]]:
        """Return the messages that the handler would append, and where they are put."""
        runs: list[MessageRun] = []
        results: list[PutMessageResult] = []
        handler = self._path.runs
        put = handler._put

        def capture(run: MessageRun) -> Any:
            result = put(run)
            if result is not None:
                runs.append(run)
                results.append(result)
            return result

        handler._put = capture
        try:
            self._handle()
        finally:
            handler._put = put
        self._catch_up()
        return runs, results

    def _catch_up(self) -> None:
        self._path.store.appender.dispatch()
        self._flush_index()

    def _whole(self) -> None:
        self._read(self._path.connection)
        self._flush_index()

    def _read(self, connection: RemotingConnection, *, alone: bool = False) -> None:
        """Feed the requests to a connection, by one read event or each by its own."""
        for frames_ in self._reads:
            for event in frames_ if alone else [b"".join(frames_)]:
                read_event(connection, event)

    def _decode(self) -> None:
        for values, _ in self._runs:
            decode_plain([each[2] for each in values])

    def _handle(self) -> None:
        handle, connection = self._path.runs.process, self._path.connection
        for values, bodies in self._runs:
            handle(connection, self._command, values, bodies)

    def _append(self, runs: list[MessageRun]) -> None:
        for run in runs:
            self._path.store.appender.put_run(run)

    def _append_and_dispatch(self, runs: list[MessageRun]) -> None:
        """Append all messages and dispatch after each read event, as the network path does."""
        appender = self._path.store.appender
        for run in runs:
            appender.put_run(run)
            appender.dispatch()

    def _flush_index(self) -> None:
        index_service = self._path.store.index_service
        assert index_service is not None
        index_service.flush()

    def _answer(self, runs: list[MessageRun], results: list[PutMessageResult]) -> None:
        template = self._path.runs.own.run_template
        for (values, _), run, result in zip(self._runs, runs, results, strict=False):
            queue_ids, _, _, opaques = zip(*values, strict=True)
            keys = [found[1] for found in run.found]
            frames(send_responses(opaques, queue_ids, result.queue_offsets, result.physical_offsets, keys, template))


def _values(match: Any) -> tuple[bytes, ...]:
    assert match is not None, "the requests of a burst fit one template"
    found: tuple[bytes, ...] = match.groups()
    return found


SEND_STEPS = {
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


def send_parts(timed: dict[str, float]) -> dict[str, float]:
    """Return the time of each step in the order of ``SEND_STEPS``, without the steps it calls, and the bounds."""
    steps = {step: timed[step] for step in SEND_STEPS if step in timed}
    steps["process"] = timed["handler"] - timed["properties"] - timed["append"] - timed["answer"]
    steps["dispatch"] = timed["stored"] - timed["append"]
    steps["rest"] = timed["whole"] - sum(steps.values())
    bounds = {
        "whole": timed["whole"],
        "answered": timed["frames"] + timed["answer"],
        "stored": timed["stored"] + timed["index"],
        "alone": timed["alone"],
    }
    return {step: steps[step] for step in SEND_STEPS} | bounds


def send_table(least: dict[str, float], middle: dict[str, float]) -> Iterator[str]:
    """Return a Markdown table of steps and bounds: least and median microseconds, share and description."""
    yield "| step | µs a message | median | share | work |"
    yield "|---|---:|---:|---:|---|"
    for step, work in (SEND_STEPS | BOUNDS).items():
        yield f"| {step} | {least[step]:.2f} | {middle[step]:.2f} | {least[step] / least['whole']:.0%} | {work} |"


async def send_profile(root: Path, size: int, frames: int, bursts: int) -> tuple[dict[str, float], dict[str, float]]:
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
    return tuple(send_parts({step: of(each) for step, each in timed.items()}) for of in (min, median))  # type: ignore[return-value]


def profile_send(
    size: Annotated[int, typer.Option(min=0, max=4 << 20, help="Bytes of each body.")] = 128,
    frames: Annotated[int, typer.Option(min=7, max=64, help="Requests that come by one read event.")] = 25,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Folder = None,
) -> None:
    """Print the cost of each step of a send. A broker adds the event loop and the system calls."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-send_profile-", dir=folder) as root:
        least, middle = asyncio.run(send_profile(Path(root), size, frames, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {frames} requests a read, {bursts} bursts\n")
    print("\n".join(send_table(least, middle)))


_PULLED = 32
_TOGETHER = 7
_HOST = bytes(8)

BATCH_STEPS = {
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


def batch_parts(least: dict[str, float]) -> dict[str, float]:
    """Return the time of each step without the steps that it includes, and of the whole."""
    steps = dict(least)
    steps["process"] -= least["split"] + least["store"]
    steps["store"] -= least["encode"] + least["properties"]
    return {step: steps[step] for step in BATCH_STEPS} | {"whole": sum(steps[step] for step in BATCH_STEPS)}


def batch_table(steps: dict[str, float]) -> Iterator[str]:
    """Return a Markdown table of the steps: microseconds, share and description."""
    yield "| step | µs a message | share | work |"
    yield "|---|---:|---:|---|"
    for step, microseconds in steps.items():
        work = BATCH_STEPS.get(step, "all steps")
        yield f"| {step} | {microseconds:.2f} | {microseconds / steps['whole']:.0%} | {work} |"


async def batch_profile(root: Path, count: int, size: int, bursts: int) -> tuple[dict[str, float], float, float]:
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
    return batch_parts(least), min(together), min(pulled)


def _decoded(route: Route, frame: bytes) -> Command:
    command = route.decode_json(header_of(frame))
    command.body = body_of(frame)
    return command


def _cpu_of(work: Callable[[], object]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun


def profile_batch(
    count: Annotated[int, typer.Option(min=1, max=1000, help="Messages in a batch.")] = 32,
    size: Annotated[int, typer.Option(min=0, max=4096, help="Bytes of each body.")] = 128,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Folder = None,
) -> None:
    """Print the cost of each step of a batch and of a pull. A broker adds the event loop and the system calls."""
    with tempfile.TemporaryDirectory(prefix="rocketbroker-batch_profile-", dir=folder) as root:
        steps, together, pulled = asyncio.run(batch_profile(Path(root), count, size, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, batches of {count} x {size} B, {bursts} bursts\n")
    print("\n".join(batch_table(steps)))
    print(f"\n{_TOGETHER} batches by one read event, from the bytes read to the answers: {together:.2f} µs a message")
    print(f"a pull of {_PULLED} messages, likewise: {pulled:.2f} µs a message")
