"""``mqadmin export`` and ``import``: messages of topics as files, and sent again; both continue where they stopped.

An export writes to ``<target>.part`` and, behind the rows, the offsets it has come to into ``<target>.part.state``.
After a kill at any point the state names rows that are written: rows behind them are dropped by the next run.

An import sends batches, and begins one when all of the last one are acknowledged and counted in
``<source>.import``. After a kill the messages of one batch may have been sent and not counted: these are sent again.
Ctrl-C also notes which of the batch were acknowledged, so that only those in flight may come twice.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

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
    exported_row,
    prepare,
    queue_of_number,
    replay_row,
)
from rocketbroker.analytics.spark.send_lanes import send_until_ok
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.message_files import (
    PART,
    JsonLinesWriter,
    ParquetWriter,
    RowWriter,
    StreamWriter,
    export_files,
    json_rows,
    lock,
    rows_of,
)
from rocketbroker.app.mqadmin.selecting import GivenFrom, GivenTime, GivenUntil, Key, Sql, Tags, Wanted, wanted
from rocketbroker.app.terminal import progress, say
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import Gap, ReadableQueue
from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

T = TypeVar("T")

_STATE: Final = ".state"
_IMPORT_STATE: Final = ".import"
_SAVE_S: Final = 0.5
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


class QueueState(msgspec.Struct, rename="camel"):
    """Progress of an export in one queue: the next offset to read, the end, and the last message that was read."""

    topic: str
    broker_name: str
    queue_id: int
    next: int
    end: int
    last_offset: int = -1
    last_msg_id: str = ""


class Times(NamedTuple):
    """Store times in ms: from the first one to before the second one; None is no limit."""

    from_ms: int | None
    until_ms: int | None


def _ms(given: GivenTime | None) -> int | None:
    return None if given is None else given.ms


def _text(given: GivenTime | None) -> str | None:
    return None if given is None else given.text


class ExportState(msgspec.Struct, rename="camel"):
    """Progress of an export: its options, the mark of the target, the rows before it, the queues and store times."""

    options: dict[str, Any]
    mark: int
    rows: int
    queues: list[QueueState]
    times: Times = Times(None, None)


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


@sub_command("export", "Write the messages of topics to a file.")
async def export(
    admin: AdminClient,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to export.")],
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="A new file; for Parquet a new folder; - for stdout.")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="jsonl or parquet; by default by the name, .parquet or another."
        ),
    ] = None,
    from_time: GivenFrom = None,
    until: GivenUntil = None,
    key: Key = None,
    tags: Tags = None,
    sql: Sql = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an export that was interrupted.")] = False,
    as_json: bool = False,
) -> Report:
    """Write the messages of topics to a file, queue by queue, each queue up to its present end.

    It joins no consumer group. After Ctrl-C or a kill the same command with --resume continues.
    """
    kind = form or ("parquet" if to.endswith(".parquet") else "jsonl")
    if kind not in {"jsonl", "parquet"}:
        raise typer.BadParameter(f"--format {kind!r} is unknown; use jsonl or parquet")
    if to.endswith(".gz"):
        raise typer.BadParameter(
            f"--to {to!r}: an export is not compressed; name it without .gz, and compress it after"
        )
    times = Times(_ms(from_time), _ms(until))
    selected = wanted(times.from_ms, times.until_ms, key, tags, sql)
    topics = list(dict.fromkeys(topics))
    options = {
        "topics": topics,
        "format": kind,
        "from": _text(from_time),
        "until": _text(until),
        "key": key,
        "tags": tags,
        "sql": sql,
    }
    run = Export(admin, to, options, selected)
    state = await run.run(resume=resume)
    if to == "-":
        return Report(None, [], run.gaps)
    data = {"topics": topics, "to": to, "format": kind, "messages": state.rows, "damaged": run.damaged}
    data["missing"] = run.missing
    failures = [f"{run.damaged} damaged messages were left out"] if run.damaged else []
    failures += run.gaps
    return Report(data, [f"{to}: {state.rows:,} messages"], failures)


class Export:
    """Run of an export.

    Args:
        admin: the client.
        to: target, ``-`` for stdout.
        options: what the rows depend on; a resumed export must have the same.
        selected: messages wanted.
    """

    def __init__(self, admin: AdminClient, to: str, options: dict[str, Any], selected: Wanted) -> None:
        self._admin = admin
        self._to = to
        self._options = options
        self._wanted = selected
        self._path = Path(to)
        self._state_path = self._path.with_name(self._path.name + PART + _STATE)
        self.damaged = 0
        self.missing = 0
        self.gaps: list[str] = []

    async def run(self, *, resume: bool) -> ExportState:
        """Export, and return the final state.

        Raises:
            ConfigError: the target exists, or cannot be resumed; the text says what to do.
        """
        if self._to == "-":
            if resume or self._options["format"] != "jsonl":
                raise ConfigError("--to - writes JSON lines to stdout, and cannot be resumed; name a file")
            return await self._write(StreamWriter(), await self._new_state())
        state = self._saved(resume=resume)
        if state is not None:
            self._wanted = self._wanted._replace(from_ms=state.times.from_ms, until_ms=state.times.until_ms)
            for place in state.queues:
                await self._check_unchanged(place)
        make: type[JsonLinesWriter | ParquetWriter] = (
            ParquetWriter if self._options["format"] == "parquet" else JsonLinesWriter
        )
        begun = state or await self._new_state()
        try:
            writer = make(self._path, None if state is None else state.mark)
        except OSError as error:
            raise ConfigError(f"--to {self._to}: {error.strerror}") from error
        try:
            if state is None:
                self._save(begun)
            done = await self._write(writer, begun)
        finally:
            writer.close()
        self._state_path.unlink()
        return done

    def _saved(self, *, resume: bool) -> ExportState | None:
        if self._path.exists():
            raise ConfigError(f"--to {self._to} exists already; name a new one, or remove it")
        if not self._state_path.exists():
            if resume:
                raise ConfigError(f"there is no interrupted export to {self._to} (no {self._state_path.name})")
            return None
        state: ExportState = read_state(self._state_path, ExportState)
        if not resume:
            raise ConfigError(
                f"an export to {self._to} was interrupted after {state.rows:,} messages; continue it by --resume, "
                f"or remove {self._path.name}{PART} and {self._state_path.name}"
            )
        check_options(state.options, self._options, self._state_path)
        return state

    async def _check_unchanged(self, place: QueueState) -> None:
        """Check that a queue still is the one that an interrupted export has read.

        Raises:
            ConfigError: it is not.
        """
        queue = await self._admin.readable_queue(place.topic, place.broker_name, place.queue_id)
        same = await self._admin.queue_max_offset(queue) >= place.end
        if same and place.last_msg_id and await self._admin.queue_min_offset(queue) <= place.last_offset:
            message = await self._admin.message_at(queue, place.last_offset)
            same = message is not None and message.offset_msg_id == place.last_msg_id
        if not same:
            raise ConfigError(
                f"topic {place.topic} was created again since this export began: queue {place.broker_name}/"
                f"{place.queue_id} has other messages than before; remove {self._path.name}{PART} and "
                f"{self._state_path.name} to export the new topic, or name another target"
            )

    async def _new_state(self) -> ExportState:
        queues = []
        for topic in self._options["topics"]:
            for each in await self._admin.readable_queues(topic):
                span = await self._wanted.span(self._admin, each)
                queues.append(QueueState(topic, each.queue.broker_name, each.queue.queue_id, span.begin, span.end))
        return ExportState(self._options, 0, 0, queues, Times(self._wanted.from_ms, self._wanted.until_ms))

    async def _write(self, writer: RowWriter, state: ExportState) -> ExportState:
        """Read all queues; on every way out leave a state that agrees with the target."""
        # What is read, which may be ahead of what the target has.
        ahead = msgspec.convert(msgspec.to_builtins(state), ExportState)
        total = sum(max(queue.end - queue.next, 0) for queue in ahead.queues)
        saved_at = time.monotonic()
        try:
            with progress("Exporting", total) as advance:
                for place in ahead.queues:
                    queue = await self._admin.readable_queue(place.topic, place.broker_name, place.queue_id)
                    async with aclosing(self._rows(queue, place)) as pulls:
                        async for rows, following in pulls:
                            writer.write(rows)
                            ahead.rows += len(rows)
                            advance(following - place.next)
                            place.next = following
                            if rows:
                                place.last_offset, place.last_msg_id = rows[-1]["queue_offset"], rows[-1]["msg_id"]
                            if time.monotonic() - saved_at >= _SAVE_S:
                                self._note(writer.mark(), ahead)
                                saved_at = time.monotonic()
                    place.next = place.end
            self._note(writer.mark(force=True), ahead)
            writer.finish()
        except BaseException as error:
            # Ctrl-C, a broker that fails, a full disk: the rows that are written count.
            if self._to != "-":
                with suppress(OSError, StoreError):  # the last state still agrees with the target
                    self._note(writer.mark(force=True), ahead)
                say(f"mqadmin: what was read is in {self._path.name}{PART}; continue by --resume", err=True)
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise StoreError(f"--to {self._to}: {error.strerror}") from error
            raise
        return ahead

    async def _rows(
        self, queue: ReadableQueue, place: QueueState
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], int], None]:
        """Yield the rows of each pull, and the offset behind it."""
        pulls = self._admin.read_messages(
            queue, place.next, place.end, selector=self._wanted.selector, on_gap=partial(self._on_gap, place)
        )
        async with aclosing(pulls):
            async for result in pulls:
                if result.damage:
                    self.damaged += 1
                    where = f"{place.topic} {place.broker_name}/{place.queue_id}"
                    say(f"mqadmin: {where}: a damaged message is left out: {result.damage}", err=True)
                rows = [exported_row(each, place.broker_name) for each in result.messages if self._wanted.has(each)]
                yield rows, min(result.next_begin_offset, place.end)

    def _on_gap(self, place: QueueState, gap: Gap) -> None:
        self.missing += gap.end - gap.begin
        self.gaps.append(
            f"topic {place.topic} {place.broker_name}/{place.queue_id}: offsets {gap.begin} to {gap.end - 1} are "
            "missing: the messages expired, or the topic was deleted, before they were read"
        )

    def _note(self, mark: int | None, state: ExportState) -> None:
        if mark is not None:
            state.mark = mark
            self._save(state)

    def _save(self, state: ExportState) -> None:
        try:
            write_state(self._state_path, state)
        except OSError as error:
            raise StoreError(f"{self._state_path}: {error.strerror}") from error


def write_state(path: Path, state: msgspec.Struct) -> None:
    """Replace a file of progress as a whole, on disk before it gets its name.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_state(path: Path, kind: Any) -> Any:
    """Return the progress in a file.

    Raises:
        ConfigError: it is not a file of progress.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is no file of progress: {error}; remove it to begin at the start") from error


def check_options(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Compare the options of an interrupted run with those of this one.

    Raises:
        ConfigError: one differs.
    """
    for name, value in now.items():
        if before.get(name) != value:
            raise ConfigError(
                f"{path.name} was begun with {name} {before.get(name)!r}, now it is {value!r}; "
                "give the same options to resume"
            )


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
        "from": _text(from_time),
        "until": _text(until),
        "key": key,
    }
    times = Times(_ms(from_time), _ms(until))
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
            raise StoreError(
                f"{self._state_path}: {error.strerror}; copy the export to a folder that can be written"
            ) from error


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
