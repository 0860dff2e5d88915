"""``mqadmin import``: messages of an export sent again, continued where it stopped.

It sends batches, and begins one when all of the last one are acknowledged and counted in ``<source>.import``. After a
kill the messages of one batch may have been sent and not counted: these are sent again. Ctrl-C also notes which of the
batch were acknowledged, so that only those in flight may come twice.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from rocketbroker.analytics.jobs.exported_rows import (
    NO_MESSAGE,
    OVER_SIZE,
    RETRY_OR_DEAD_LETTER,
    SYSTEM_TOPIC,
    Origin,
    Ready,
    TargetQueues,
    prepare,
    queue_of_number,
    replay_row,
)
from rocketbroker.analytics.spark.send_lanes import send_until_ok
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.message_files import (
    export_files,
    json_rows,
    lock,
    rows_of,
)
from rocketbroker.app.mqadmin.selecting import GivenFrom, GivenUntil, Key
from rocketbroker.app.mqadmin.transfer_state import Times, check_options, ms_of, read_state, text_of, write_state
from rocketbroker.app.terminal import progress, say
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

T = TypeVar("T")

_IMPORT_STATE: Final = ".import"
_GROUP: Final = "mqadmin_import"
# A batch of an import, and how many of its messages are in flight.
_BATCH: Final = 100
_BATCH_BYTES: Final = 4 << 20
_IN_FLIGHT: Final = 16
# Tries of a message beyond the first: with their pauses they outlast the restart of a broker.
_RETRIES: Final = 6
# Reasons to leave out a row that are no failure.
_EXPECTED: Final = frozenset({RETRY_OR_DEAD_LETTER, SYSTEM_TOPIC})
_NOT_KEPT: Final = (
    "not kept: ids, offsets, times, hosts, counts of retries, delays and transactions; each message is a new one"
)


class ImportState(msgspec.Struct, rename="camel"):
    """Progress of an import: its options, the files, the rows done, and those acknowledged of the next batch.

    ``sent`` counts by topic, ``skipped`` by reason, ``unsafe`` what is sent with a status other than SEND_OK.
    """

    options: dict[str, Any]
    files: dict[str, int]
    times: Times = Times(None, None)
    rows: int = 0
    acknowledged: list[int] = []
    sent: dict[str, int] = {}
    skipped: dict[str, int] = {}
    unsafe: dict[str, int] = {}


@sub_command("import", "Send the messages of an exported file.")
async def import_messages(
    admin: AdminClient,
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="File or folder of an export; - for JSON lines on stdin.")
    ],
    to_topic: Annotated[
        list[str] | None,
        typer.Option("--to-topic", metavar="OLD=NEW", help="Send a topic's messages to another; may be repeated."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Send this topic only; may be repeated.")
    ] = None,
    from_time: GivenFrom = None,
    until: GivenUntil = None,
    key: Key = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="NUMBER", help="Messages per second; 0: no limit.")
    ] = 0,
    max_size: Annotated[
        int,
        typer.Option("--max-size", min=1, metavar="BYTES", help="Largest body to send; brokers have maxMessageSize."),
    ] = MAX_MESSAGE_SIZE,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an import that was interrupted.")] = False,
    dry_run: bool = False,
) -> Report:
    """Send exported messages again, in order within each queue, each at least once.

    After Ctrl-C or a kill the same command with --resume continues; at most one batch of 100 is sent twice.
    """
    options = {
        "namesrvAddr": admin.config.namesrv_addr,
        "toTopic": _renamed(to_topic or []),
        "topics": sorted(topic or []),
        "from": text_of(from_time),
        "until": text_of(until),
        "key": key,
    }
    times = Times(ms_of(from_time), ms_of(until))
    if times.from_ms is not None and times.until_ms is not None and times.from_ms >= times.until_ms:
        raise typer.BadParameter("--from is not before --until")
    run = Import(admin, source, options, times, rate, max_size)
    state = await run.run(resume=resume, dry_run=dry_run)
    verb = "would be sent" if dry_run else "sent"
    lines = [f"{name}: {count:,} {verb}" for name, count in sorted(state.sent.items())]
    lines += [
        f"left out, {reason}: {count:,}" for reason, count in sorted(state.skipped.items()) if reason in _EXPECTED
    ]
    total = sum(state.sent.values())
    lines += [f"{total:,} messages {verb}", *([_NOT_KEPT] if total else [])]
    lines += [
        f"stored, but answered {status}: {count:,}; they may be lost with their broker"
        for status, count in sorted(state.unsafe.items())
    ]
    data = {"source": source, "dryRun": dry_run, "sent": state.sent, "skipped": state.skipped, "unsafe": state.unsafe}
    failures = [_failure(reason, count) for reason, count in sorted(state.skipped.items()) if reason not in _EXPECTED]
    return Report(data, lines, failures)


def _failure(reason: str, count: int) -> str:
    if reason == NO_MESSAGE:
        return f"{count:,} lines are no messages of an export"
    advice = "; raise --max-size, and the broker's maxMessageSize" if reason.startswith(OVER_SIZE) else ""
    return f"{count:,} messages were left out: {reason}{advice}"


def _renamed(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        old, _, new = each.partition("=")
        if not old or not new:
            raise typer.BadParameter(f"--to-topic is {each!r}; give OLD=NEW")
        found[old] = new
    return found


class Import:
    """Run of an import.

    Args:
        admin: the client, for its settings.
        source: file, folder, or ``-`` for stdin.
        options: what is sent and where; a resumed import must have the same.
        times: store times to send; a resumed import keeps those of its first run.
        rate: messages in a second, 0 for no limit.
        max_size: largest body to send, in bytes.
    """

    def __init__(
        self, admin: AdminClient, source: str, options: dict[str, Any], times: Times, rate: float, max_size: int
    ) -> None:
        self._admin = admin
        self._times = times
        self._max_size = max_size
        self._targets = TargetQueues()
        self._source = source
        self._options = options
        self._interval = 1 / rate if rate else 0.0
        self._due = 0.0
        self._topics: dict[str, str] = options["toTopic"]
        path = Path(source)
        self._state_path = path.with_name(path.name + _IMPORT_STATE)

    async def run(self, *, resume: bool, dry_run: bool) -> ImportState:
        """Send, or count what would be sent, and return the final state.

        Raises:
            ConfigError: the source does not exist, or cannot be resumed; the text says what to do.
            RocketBrokerError: a message could not be sent; the state says how far it came.
        """
        if self._source == "-":
            if resume:
                raise ConfigError("an import from stdin cannot be resumed; write the lines to a file")
            # A buffer of its own: the one of sys.stdin cannot be closed while a thread reads it.
            with open(sys.stdin.fileno(), "rb", closefd=False) as lines:  # noqa: ASYNC230 - opens nothing
                return await self._run(ImportState(self._options, {}, self._times), json_rows(lines), dry_run=dry_run)
        path = Path(self._source)
        files = await asyncio.to_thread(export_files, path)
        locked = os.open(path, os.O_RDONLY)
        try:
            if not dry_run:
                lock(locked, path)
            # Names within the source, so that the import can be resumed from any working directory.
            sizes = {str(each.relative_to(path)): each.stat().st_size for each in files}
            state = self._begun(sizes, resume=resume)
            return await self._run(state, (row for each in files for row in rows_of(each)), dry_run=dry_run)
        finally:
            os.close(locked)

    async def _run(self, state: ImportState, rows: Iterator[Mapping[str, Any]], *, dry_run: bool) -> ImportState:
        if dry_run:
            return await self._count(rows, state)
        self._save(state)
        async with Producer(_GROUP, self._admin.config, max_message_size=self._max_size) as producer:
            with progress("Importing") as advance:
                try:
                    await self._send_all(producer, rows, state, advance)
                except BaseException:
                    if self._source != "-":
                        say(f"mqadmin: {sum(state.sent.values()):,} messages are sent; continue by --resume", err=True)
                    raise
        if self._source != "-":
            self._state_path.unlink(missing_ok=True)
        return state

    def _begun(self, files: dict[str, int], *, resume: bool) -> ImportState:
        if not self._state_path.exists():
            if resume:
                raise ConfigError(f"there is no interrupted import of {self._source} (no {self._state_path.name})")
            return ImportState(self._options, files, self._times)
        state: ImportState = read_state(self._state_path, ImportState)
        if not resume:
            raise ConfigError(
                f"an import of {self._source} was interrupted after {sum(state.sent.values()):,} messages; continue it "
                f"by --resume, or remove {self._state_path} to send all again"
            )
        check_options(state.options, self._options, self._state_path)
        if state.files != files:
            raise ConfigError(f"{self._source} has changed since its import was interrupted; it cannot be resumed")
        self._times = state.times
        return state

    async def _count(self, rows: Iterator[Mapping[str, Any]], state: ImportState) -> ImportState:
        while batch := await _in_thread(self._next_rows, rows, _BATCH):
            for ready in map(self._ready, batch):
                _count_one(state, ready)
        return state

    def _ready(self, row: Mapping[str, Any]) -> Ready | str | None:
        """Return the message of a row, the reason why it has none, or None if it is not wanted."""
        topics, (from_ms, until_ms) = self._options["topics"], self._times
        found, key = replay_row(row), self._options["key"]
        if found is None:
            return NO_MESSAGE
        stored = found.store_timestamp
        if topics and found.topic not in topics:
            return None
        if (from_ms is not None and stored < from_ms) or (until_ms is not None and stored >= until_ms):
            return None
        if key is not None and key not in _keys_of(found.properties or {}):
            return None
        return prepare(row, self._topics, self._max_size)

    async def _send_all(
        self, producer: Producer, rows: Iterator[Mapping[str, Any]], state: ImportState, advance: Any
    ) -> None:
        """Send batch after batch, each counted before the next one begins."""
        done = set(state.acknowledged)
        left = state.rows
        while left:  # rows that are done count for the target queues
            skipped = await _in_thread(self._next_rows, rows, min(left, _BATCH))
            if not skipped:
                break
            left -= len(skipped)
        while batch := await _in_thread(self._next_rows, rows, _BATCH):
            readies = [self._ready(row) for row in batch]
            acknowledged: dict[int, SendStatus] = {}
            try:
                await self._send_batch(producer, readies, done, acknowledged)
            except BaseException:
                for number, status in acknowledged.items():
                    _count_one(state, readies[number], status)
                state.acknowledged = sorted(done | acknowledged.keys())
                self._save(state)
                raise
            for number, ready in enumerate(readies):
                if number not in done:
                    _count_one(state, ready, acknowledged.get(number, SendStatus.SEND_OK))
            state.rows += len(batch)
            state.acknowledged, done = [], set()
            self._save(state)
            advance(len(batch))

    async def _send_batch(
        self,
        producer: Producer,
        readies: Sequence[Ready | str | None],
        done: set[int],
        acknowledged: dict[int, SendStatus],
    ) -> None:
        """Send the messages of a batch that are not done, and note their status; those of one queue in their order.

        Raises:
            RocketBrokerError: error of the first message that failed; others of other queues may be sent.
        """
        lanes: dict[Origin, list[tuple[int, Ready]]] = {}
        for number, ready in enumerate(readies):
            if isinstance(ready, Ready) and number not in done:
                lanes.setdefault(ready.queue, []).append((number, ready))
        in_flight = asyncio.Semaphore(_IN_FLIGHT)

        async def send_lane(lane: list[tuple[int, Ready]]) -> None:
            for number, ready in lane:
                async with in_flight:
                    await self._wait_until_due()
                    queue = partial(queue_of_number, self._targets.number(ready.queue))
                    acknowledged[number] = await send_until_ok(
                        producer, ready.message, queue, _RETRIES, accepts_stored=True
                    )

        try:
            async with asyncio.TaskGroup() as group:
                for lane in lanes.values():
                    group.create_task(send_lane(lane))
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            if not isinstance(first, RocketBrokerError):
                raise
            raise first from None

    async def _wait_until_due(self) -> None:
        if not self._interval:
            return
        now = time.monotonic()
        due = max(self._due, now)
        self._due = due + self._interval
        await asyncio.sleep(due - now)

    def _next_rows(self, rows: Iterator[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
        """Return the next rows, up to ``most``, fewer where their bodies are long."""
        found: list[Mapping[str, Any]] = []
        size = 0
        for row in islice(rows, most):
            found.append(row)
            size += len(row.get("body") or b"")
            if size >= _BATCH_BYTES:
                break
        for row in found:
            typed = replay_row(row)
            if typed is not None:
                self._targets.number(Origin(typed.broker or "", typed.topic, typed.queue_id))
        return found

    def _save(self, state: ImportState) -> None:
        if self._source == "-":
            return
        try:
            write_state(self._state_path, state)
        except OSError as error:
            is_begun = self._state_path.exists()
            advice = "make room there" if is_begun else "copy the export to a folder that can be written"
            raise StoreError(f"{self._state_path}: {error.strerror}; {advice}") from error


async def _in_thread(work: Callable[..., T], *args: Any) -> T:
    """Run a function that may wait for its input, and return its result.

    ``asyncio.to_thread`` would do, but a program waits for its threads: nobody could interrupt a read of a terminal.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work(*args)
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop was closed after Ctrl-C
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="mqadmin import reads", daemon=True).start()
    return await done


def _keys_of(properties: Mapping[str, str]) -> list[str]:
    return [*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")]


def _count_one(state: ImportState, ready: Ready | str | None, status: SendStatus = SendStatus.SEND_OK) -> None:
    if isinstance(ready, Ready):
        if status is not SendStatus.SEND_OK:
            state.unsafe[status.name] = state.unsafe.get(status.name, 0) + 1
        state.sent[ready.message.topic] = state.sent.get(ready.message.topic, 0) + 1
    elif ready is not None:
        state.skipped[ready] = state.skipped.get(ready, 0) + 1
