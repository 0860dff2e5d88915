"""``mqadmin export`` and ``import``: messages of topics as files, and sent again; both continue where they stopped.

An export writes to ``<target>.part`` and, behind the rows, the offsets it has come to into ``<target>.part.state``.
After a kill at any point the state names rows that are written: rows behind them are dropped by the next run.

An import sends batches, and begins one when all of the last one are acknowledged and counted in
``<source>.import``. After a kill the messages of one batch may have been sent and not counted: these are sent again.
Ctrl-C also notes which of the batch were acknowledged, so that only those in flight may come twice.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from rocketbroker.analytics.jobs.exported_rows import NO_MESSAGE, Ready, exported_row, prepare
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
    rows_of,
)
from rocketbroker.app.mqadmin.selecting import From, Key, Sql, Tags, Until, Wanted, wanted
from rocketbroker.app.terminal import progress, say
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import ReadableQueue
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import ConfigError, RocketBrokerError, StoreError

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
_NOT_KEPT: Final = (
    "not kept: ids, offsets, times, hosts, counts of retries, delays and transactions; each message is a new one"
)


class QueueState(msgspec.Struct, rename="camel"):
    """Progress of an export in one queue: the next offset to read, and the end."""

    topic: str
    broker_name: str
    queue_id: int
    next: int
    end: int


class ExportState(msgspec.Struct, rename="camel"):
    """Progress of an export: its options, the mark of the target, the rows before it, and the queues."""

    options: dict[str, Any]
    mark: int
    rows: int
    queues: list[QueueState]


class ImportState(msgspec.Struct, rename="camel"):
    """Progress of an import: its options, the files, the rows done, and those acknowledged of the next batch."""

    options: dict[str, Any]
    files: dict[str, int]
    rows: int = 0
    acknowledged: list[int] = []
    sent: dict[str, int] = {}
    skipped: dict[str, int] = {}


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
    from_time: From = None,
    until: Until = None,
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
    selected = wanted(from_time, until, key, tags, sql)
    options = {
        "topics": topics,
        "format": kind,
        "from": from_time,
        "until": until,
        "key": key,
        "tags": tags,
        "sql": sql,
    }
    run = Export(admin, to, options, selected)
    state = await run.run(resume=resume)
    if to == "-":
        return Report(None, [])
    data = {"topics": topics, "to": to, "format": kind, "messages": state.rows, "damaged": run.damaged}
    failures = [f"{run.damaged} damaged messages were left out"] if run.damaged else []
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
        make: type[JsonLinesWriter | ParquetWriter] = (
            ParquetWriter if self._options["format"] == "parquet" else JsonLinesWriter
        )
        begun = state or await self._new_state()
        try:
            writer = make(self._path, None if state is None else state.mark)
        except OSError as error:
            raise ConfigError(f"--to {self._to}: {error.strerror}") from error
        if state is None:
            self._save(begun)
        try:
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

    async def _new_state(self) -> ExportState:
        queues = []
        for topic in self._options["topics"]:
            for each in await self._admin.readable_queues(topic):
                span = await self._wanted.span(self._admin, each)
                queues.append(QueueState(topic, each.queue.broker_name, each.queue.queue_id, span.begin, span.end))
        return ExportState(self._options, 0, 0, queues)

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
                            if time.monotonic() - saved_at >= _SAVE_S:
                                self._note(writer.mark(), ahead)
                                saved_at = time.monotonic()
                    place.next = place.end
            self._note(writer.mark(force=True), ahead)
            writer.finish()
        except BaseException as error:
            # Ctrl-C, a broker that fails, a full disk: the rows that are written count.
            if self._to != "-":
                with suppress(OSError):  # the last state still agrees with the target
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
        pulls = self._admin.read_messages(queue, place.next, place.end, selector=self._wanted.selector)
        async with aclosing(pulls):
            async for result in pulls:
                if result.damage:
                    self.damaged += 1
                    where = f"{place.topic} {place.broker_name}/{place.queue_id}"
                    say(f"mqadmin: {where}: a damaged message is left out: {result.damage}", err=True)
                rows = [exported_row(each, place.broker_name) for each in result.messages if self._wanted.has(each)]
                yield rows, min(result.next_begin_offset, place.end)

    def _note(self, mark: int | None, state: ExportState) -> None:
        if mark is not None:
            state.mark = mark
            self._save(state)

    def _save(self, state: ExportState) -> None:
        write_state(self._state_path, state)


def write_state(path: Path, state: msgspec.Struct) -> None:
    """Replace a file of progress as a whole.

    A power loss may lose it with the target; a kill of the process cannot part them.
    """
    draft = path.with_name(path.name + ".tmp")
    draft.write_bytes(msgspec.json.encode(state))
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
    from_time: From = None,
    until: Until = None,
    key: Key = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="NUMBER", help="Messages per second; 0: no limit.")
    ] = 0,
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
        "from": from_time,
        "until": until,
        "key": key,
    }
    if from_time is not None and until is not None and from_time >= until:
        raise typer.BadParameter("--from is not before --until")
    run = Import(admin, source, options, rate)
    state = await run.run(resume=resume, dry_run=dry_run)
    verb = "would be sent" if dry_run else "sent"
    lines = [f"{name}: {count:,} {verb}" for name, count in sorted(state.sent.items())]
    lines += [f"left out, {reason}: {count:,}" for reason, count in sorted(state.skipped.items())]
    total = sum(state.sent.values())
    lines += [f"{total:,} messages {verb}", *([_NOT_KEPT] if total else [])]
    data = {"source": source, "dryRun": dry_run, "sent": state.sent, "skipped": state.skipped}
    failures = [
        f"{count:,} lines are no messages of an export" for count in [state.skipped.get(NO_MESSAGE, 0)] if count
    ]
    return Report(data, lines, failures)


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
        rate: messages in a second, 0 for no limit.
    """

    def __init__(self, admin: AdminClient, source: str, options: dict[str, Any], rate: float) -> None:
        self._admin = admin
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
            state, rows = ImportState(self._options, {}), json_rows(sys.stdin.buffer)
        else:
            files = await asyncio.to_thread(export_files, Path(self._source))
            state = self._begun({str(path): path.stat().st_size for path in files}, resume=resume)
            rows = (row for path in files for row in rows_of(path))
        if dry_run:
            return await self._count(rows, state)
        self._save(state)
        async with Producer(_GROUP, self._admin.config) as producer:
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
            return ImportState(self._options, files)
        state: ImportState = read_state(self._state_path, ImportState)
        if not resume:
            raise ConfigError(
                f"an import of {self._source} was interrupted after {sum(state.sent.values()):,} messages; continue it "
                f"by --resume, or remove {self._state_path} to send all again"
            )
        check_options(state.options, self._options, self._state_path)
        if state.files != files:
            raise ConfigError(f"{self._source} has changed since its import was interrupted; it cannot be resumed")
        return state

    async def _count(self, rows: Iterator[Mapping[str, Any]], state: ImportState) -> ImportState:
        while batch := await asyncio.to_thread(_next_rows, rows):
            for ready in map(self._ready, batch):
                _count_one(state, ready)
        return state

    def _ready(self, row: Mapping[str, Any]) -> Ready | str | None:
        """Return the message of a row, the reason why it has none, or None if it is not wanted."""
        topics, from_ms, until_ms = self._options["topics"], self._options["from"], self._options["until"]
        stored, key = row.get("store_timestamp"), self._options["key"]
        if topics and row.get("topic") not in topics:
            return None
        if stored is not None and (
            (from_ms is not None and stored < from_ms) or (until_ms is not None and stored >= until_ms)
        ):
            return None
        if key is not None and key not in _keys_of(row):
            return None
        return prepare(row, self._topics)

    async def _send_all(
        self, producer: Producer, rows: Iterator[Mapping[str, Any]], state: ImportState, advance: Any
    ) -> None:
        """Send batch after batch, each counted before the next one begins."""
        done = set(state.acknowledged)
        await asyncio.to_thread(deque, islice(rows, state.rows), 0)
        while batch := await asyncio.to_thread(_next_rows, rows):
            readies = [self._ready(row) for row in batch]
            acknowledged: set[int] = set(done)
            try:
                await self._send_batch(producer, readies, acknowledged)
            except BaseException:
                for number in acknowledged - done:
                    _count_one(state, readies[number])
                state.acknowledged = sorted(acknowledged)
                self._save(state)
                raise
            for number, ready in enumerate(readies):
                if number not in done:
                    _count_one(state, ready)
            state.rows += len(batch)
            state.acknowledged, done = [], set()
            self._save(state)
            advance(len(batch))

    async def _send_batch(
        self, producer: Producer, readies: Sequence[Ready | str | None], acknowledged: set[int]
    ) -> None:
        """Send the messages of a batch that are not acknowledged; those of one queue one after the other.

        Raises:
            RocketBrokerError: error of the first message that failed; others of other queues may be sent.
        """
        lanes: dict[tuple[str, int], list[tuple[int, Ready]]] = {}
        for number, ready in enumerate(readies):
            if isinstance(ready, Ready) and number not in acknowledged:
                lanes.setdefault(ready.queue, []).append((number, ready))
        in_flight = asyncio.Semaphore(_IN_FLIGHT)

        async def send_lane(lane: list[tuple[int, Ready]]) -> None:
            for number, ready in lane:
                async with in_flight:
                    await self._wait_until_due()
                    await send_until_ok(producer, ready.message, partial(_same_queue, ready.queue[1]), _RETRIES)
                    acknowledged.add(number)

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

    def _save(self, state: ImportState) -> None:
        if self._source == "-":
            return
        try:
            write_state(self._state_path, state)
        except OSError as error:
            raise StoreError(
                f"{self._state_path}: {error.strerror}; copy the export to a folder that can be written"
            ) from error


def _next_rows(rows: Iterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the next batch: up to ``_BATCH``, fewer where their bodies are long."""
    found: list[Mapping[str, Any]] = []
    size = 0
    for row in islice(rows, _BATCH):
        found.append(row)
        size += len(row.get("body") or b"")
        if size >= _BATCH_BYTES:
            break
    return found


def _keys_of(row: Mapping[str, Any]) -> list[str]:
    properties = row.get("properties") or {}
    return [*str(properties.get("KEYS", "")).split(), properties.get("UNIQ_KEY", "")]


def _count_one(state: ImportState, ready: Ready | str | None) -> None:
    if isinstance(ready, Ready):
        state.sent[ready.message.topic] = state.sent.get(ready.message.topic, 0) + 1
    elif ready is not None:
        state.skipped[ready] = state.skipped.get(ready, 0) + 1


def _same_queue(queue_id: int, queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    """Return the same queue for all messages of an original queue, to keep their order."""
    return queues[queue_id % len(queues)]
