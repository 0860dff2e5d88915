"""CPU profiles of sends, batches and pulls: microseconds a message by step, in one process and without network.

    bench/run profile_send [--size 128] [--frames 25] [--bursts 200]
    bench/run profile_batch [--count 32] [--size 128] [--bursts 200]

Each step runs alone over the same requests in short bursts. The least CPU time of a burst counts, since other work of
the machine can only add to it; the median says how much it did. A burst of sends is as long as one batch of the index.
A burst of batches is as many batches as the index takes, four times seven batches that come by one read event, and one
pull of 32 messages from each queue.
"""

import asyncio
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Annotated, Any, Final

import typer

from bench.harness import Folder, commit, table, temporary
from bench.send_path import (
    QUEUES,
    TOPIC,
    USER,
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
from rocketbroker.codec.message.message_batch import BatchParts, split_batch
from rocketbroker.codec.message.message_properties import find_properties_of_batch
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.header_template import decode_plain
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.hot_responses import frames as frames_of
from rocketbroker.codec.remoting.hot_responses import send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.store.commitlog.message_ext_encoder import AppendBatch
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, MessageRun, PutMessageResult
from rocketbroker.store.index.index_service import BATCH_MESSAGES

_PULLED = 32
_TOGETHER = 7
_HOST = bytes(8)

SEND_STEPS: Final = {
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
SEND_BOUNDS: Final = {
    "whole": "one message of a run, all steps",
    "answered": "a broker that answers without storing: frames and answer",
    "stored": "a broker that stores without parsing: append, dispatch and index",
    "alone": "one message that comes by a read event of its own, all steps but the index",
    "signed whole": "one message of a run, all steps, signed by a user who may send it",
    "signed alone": "one such message that comes by a read event of its own, all steps but the index",
}
BATCH_STEPS: Final = {
    "decode": "JSON header to typed struct",
    "split": "split the body into columns",
    "encode": "make the records, with their checksums",
    "properties": "find tags and keys",
    "store": "write the records, enter them into the queue, note keys for the index",
    "process": "check the batch, count it, answer with its ids",
    "index": "hash keys and enter them into the IndexFile, in batches",
}


def _cpu_of(work: Callable[[], object]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun


def freeze() -> None:
    """Prepare the garbage collector as the broker does once it is up."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def _flush_index(path: SendPath) -> None:
    index_service = path.store.index_service
    assert index_service is not None
    index_service.flush()


def _catch_up(path: SendPath) -> None:
    path.store.appender.dispatch()
    _flush_index(path)


def send_timings(
    path: SendPath, reads: Sequence[Sequence[bytes]], signed: Sequence[Sequence[bytes]]
) -> dict[str, float]:
    """Measure the CPU time of each step of some sends and of the whole path, in µs a message.

    Some steps include others: ``handler`` calls properties, append and answer; ``stored`` is append and dispatch.

    Args:
        path: the parts of the send path.
        reads: the frames of each read event, which are a run of their own.
        signed: the same frames, signed.
    """
    template, appender, handler = template_of(path.route, reads[0][0]), path.store.appender, path.runs
    columns = [
        list(zip(*(_values(template.fullmatch(header_of(frame))) for frame in read), strict=True)) for read in reads
    ]
    bodies = [[body_of(frame) for frame in read] for read in reads]
    together = [b"".join(read) for read in reads]
    runs: list[MessageRun] = []
    results: list[PutMessageResult] = []

    def read(connection: Any, events: Iterable[bytes]) -> None:
        for event in events:
            read_event(connection, event)

    def whole(connection: Any, events: Iterable[bytes]) -> None:
        read(connection, events)
        _flush_index(path)

    def handle() -> None:
        for run_columns, run_bodies in zip(columns, bodies, strict=True):
            handler.process(path.connection, template.command, run_columns, run_bodies)

    def store() -> None:
        """Append all messages and dispatch after each read event, as the network path does."""
        for run in runs:
            appender.put_run(run)
            appender.dispatch()

    def answer() -> None:
        for (queue_ids, _, _, opaques), run, result in zip(columns, runs, results, strict=False):
            keys, template_ = [found[1] for found in run.found], handler.own.run_template
            offsets = result.queue_offsets, result.physical_offsets
            frames_of(send_responses(opaques, queue_ids, *offsets, keys, template_))

    put = handler._put

    def capture(run: MessageRun) -> Any:
        result = put(run)
        if result is not None:
            runs.append(run)
            results.append(result)
        return result

    handler._put = capture  # to see the messages that the handler appends
    try:
        handle()
    finally:
        handler._put = put
    _catch_up(path)
    timed = {}
    for prefix, connection, events in (("", path.connection, reads), ("signed ", path.signed_connection, signed)):
        separate, joined = [frame for event in events for frame in event], [b"".join(event) for event in events]
        timed[f"{prefix}alone"] = _cpu_of(partial(read, connection, separate))
        _flush_index(path)
        timed[f"{prefix}whole"] = _cpu_of(partial(whole, connection, joined))
    timed |= {
        "frames": _cpu_of(lambda: read(path.bare_connection, together)),
        "properties": _cpu_of(lambda: [decode_plain(texts) for _, _, texts, _ in columns]),
        "handler": _cpu_of(handle),
    }
    _catch_up(path)
    timed["append"] = _cpu_of(lambda: [appender.put_run(run) for run in runs])
    _catch_up(path)
    timed["stored"] = _cpu_of(store)
    timed["index"] = _cpu_of(lambda: _flush_index(path))
    timed["answer"] = _cpu_of(answer)
    return {step: seconds / sum(map(len, reads)) * 1e6 for step, seconds in timed.items()}


def _values(match: Any) -> tuple[bytes, ...]:
    assert match is not None, "the requests of a burst fit one template"
    found: tuple[bytes, ...] = match.groups()
    return found


def send_parts(timed: dict[str, float]) -> dict[str, float]:
    """Return the time of each step in the order of ``SEND_STEPS``, without the steps it calls, and the bounds."""
    steps = {step: timed[step] for step in SEND_STEPS if step in timed}
    steps["process"] = timed["handler"] - timed["properties"] - timed["append"] - timed["answer"]
    steps["dispatch"] = timed["stored"] - timed["append"]
    steps["rest"] = timed["whole"] - sum(steps.values())
    return {step: steps[step] for step in SEND_STEPS} | {
        "whole": timed["whole"],
        "answered": timed["frames"] + timed["answer"],
        "stored": timed["stored"] + timed["index"],
        **{way: timed[way] for way in ("alone", "signed whole", "signed alone")},
    }


async def send_profile(root: Path, size: int, frames: int, bursts: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return least and median times of the steps over ``bursts`` bursts."""
    reads = BATCH_MESSAGES // frames - 1  # one more event would make a dispatch flush the index
    timed: dict[str, list[float]] = defaultdict(list)
    async with send_path(root) as path:
        freeze()
        for burst in range(bursts + 1):
            first = 1 + burst * reads * frames
            events = range(first, first + reads * frames, frames)
            sends, signed = (
                [[send_frame(number + each, b"x" * size, signer) for each in range(frames)] for number in events]
                for signer in (None, USER)
            )
            for step, microseconds in send_timings(path, sends, signed).items():
                if burst:  # the first one makes the queues
                    timed[step].append(microseconds)
    least, middle = ({step: of(each) for step, each in timed.items()} for of in (min, median))
    return send_parts(least), send_parts(middle)


def batch_timings(path: SendPath, frames: Sequence[bytes], count: int) -> dict[str, float]:
    """Measure the CPU time of each step of the batches, in µs a message; ``process`` and ``store`` include others."""
    route = Route(RequestCode.SEND_BATCH_MESSAGE, path.route.process, SendMessageRequestHeaderV2)
    commands: list[Command] = [route.decode_json(header_of(frame)) for frame in frames]
    for command, frame in zip(commands, frames, strict=True):
        command.body = body_of(frame)
    message = MessageExtBrokerInner(topic=TOPIC, queue_id=0, body=b"", born_host=_HOST)
    batches: list[BatchParts] = []
    steps: dict[str, Callable[[], object]] = {
        "decode": lambda: [route.decode_json(header_of(frame)) for frame in frames],
        "split": lambda: batches.extend(split_batch(command.body) for command in commands),
        "encode": lambda: [AppendBatch(message, parts).encode(0, 0, 0, _HOST) for parts in batches],
        "properties": lambda: [
            find_properties_of_batch(parts.properties, parts.lengths and parts.lengths[1]) for parts in batches
        ],
        "store": lambda: [path.store.appender.put_messages(message, parts) for parts in batches],
        "process": lambda: [route.process(path.connection, command) for command in commands],
        "index": lambda: _flush_index(path),
    }
    messages = {"index": 2 * count}  # those of ``store`` and of ``process``
    return {step: _cpu_of(work) / len(frames) / messages.get(step, count) * 1e6 for step, work in steps.items()}


def batch_parts(least: dict[str, float]) -> dict[str, float]:
    """Return the time of each step without the steps that it includes, and of the whole."""
    steps = dict(least)
    steps["process"] -= least["split"] + least["store"]
    steps["store"] -= least["encode"] + least["properties"]
    return {step: steps[step] for step in BATCH_STEPS} | {"whole": sum(steps[step] for step in BATCH_STEPS)}


async def batch_profile(root: Path, count: int, size: int, bursts: int) -> tuple[dict[str, float], float, float]:
    """Return the least time of each step of a batch, of batches that come together, and of a pull, in µs a message."""
    timed: dict[str, list[float]] = defaultdict(list)
    together: list[float] = []
    pulled: list[float] = []
    batches = max((BATCH_MESSAGES - 1) // (2 * count), 1)  # one more would make a dispatch flush the index
    pulls = b"".join(pull_frame(queue_id, 0, _PULLED) for queue_id in range(QUEUES))
    async with send_path(root) as path:
        freeze()

        def read(events: Sequence[bytes]) -> None:
            for event in events:
                read_event(path.connection, event)
            _flush_index(path)

        def made(first: int, number: int) -> list[bytes]:
            return [batch_frame(first + each, count, b"x" * size) for each in range(number)]

        for _ in range(_PULLED // count + 1):  # enough messages for the pulls
            batch_timings(path, made(0, QUEUES), count)
        for burst in range(bursts):
            for step, microseconds in batch_timings(path, made(burst * batches, batches), count).items():
                timed[step].append(microseconds)
            frames = made(burst * batches, 4 * _TOGETHER)
            events = [b"".join(frames[first : first + _TOGETHER]) for first in range(0, len(frames), _TOGETHER)]
            together.append(_cpu_of(lambda events=events: read(events)) / len(frames) / count * 1e6)  # type: ignore[misc]
            pulled.append(_cpu_of(lambda: read_event(path.connection, pulls)) / QUEUES / _PULLED * 1e6)
    return batch_parts({step: min(each) for step, each in timed.items()}), min(together), min(pulled)


def profile_send(
    size: Annotated[int, typer.Option(min=0, max=4 << 20, help="Bytes of each body.")] = 128,
    frames: Annotated[int, typer.Option(min=7, max=64, help="Requests that come by one read event.")] = 25,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Folder = None,
) -> None:
    """Print the cost of each step of a send. A broker adds the event loop and the system calls."""
    with temporary(folder) as root:
        least, middle = asyncio.run(send_profile(root, size, frames, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, {size} B, {frames} requests a read, {bursts} bursts\n")
    rows = [
        [step, f"{least[step]:.2f}", f"{middle[step]:.2f}", f"{least[step] / least['whole']:.0%}", work]
        for step, work in (SEND_STEPS | SEND_BOUNDS).items()
    ]
    print(table(["step", "µs a message", "median", "share", "work"], rows, "lrrrl"))


def profile_batch(
    count: Annotated[int, typer.Option(min=1, max=1000, help="Messages in a batch.")] = 32,
    size: Annotated[int, typer.Option(min=0, max=4096, help="Bytes of each body.")] = 128,
    bursts: Annotated[int, typer.Option(min=1, help="How often each step is timed.")] = 200,
    folder: Folder = None,
) -> None:
    """Print the cost of each step of a batch and of a pull. A broker adds the event loop and the system calls."""
    with temporary(folder) as root:
        steps, together, pulled = asyncio.run(batch_profile(root, count, size, bursts))
    print(f"commit {commit()}, Python {sys.version.split()[0]}, batches of {count} x {size} B, {bursts} bursts\n")
    rows = [
        [step, f"{microseconds:.2f}", f"{microseconds / steps['whole']:.0%}", BATCH_STEPS.get(step, "all steps")]
        for step, microseconds in steps.items()
    ]
    print(table(["step", "µs a message", "share", "work"], rows, "lrrl"))
    print(f"\n{_TOGETHER} batches by one read event, from the bytes read to the answers: {together:.2f} µs a message")
    print(f"a pull of {_PULLED} messages, likewise: {pulled:.2f} µs a message")
