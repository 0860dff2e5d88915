"""``mqadmin export``: messages of topics as files, continued where it stopped.

It writes to ``<target>.part`` and, behind the rows, the offsets it has come to into ``<target>.part.state``. After a
kill at any point the state names rows that are written: rows behind them are dropped by the next run.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from rocketbroker.analytics.jobs.exported_rows import (
    exported_row,
)
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.message_files import (
    PART,
    JsonLinesWriter,
    ParquetWriter,
    RowWriter,
    StreamWriter,
)
from rocketbroker.app.mqadmin.selecting import GivenFrom, GivenUntil, Key, Sql, Tags, Wanted, wanted
from rocketbroker.app.mqadmin.transfer_state import Times, check_options, ms_of, read_state, text_of, write_state
from rocketbroker.app.terminal import progress, say
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import Gap, ReadableQueue
from rocketbroker.common.errors import ConfigError, StoreError

_STATE: Final = ".state"
_SAVE_S: Final = 0.5


class QueueState(msgspec.Struct, rename="camel"):
    """Progress of an export in one queue: the next offset to read, the end, and the last message that was read."""

    topic: str
    broker_name: str
    queue_id: int
    next: int
    end: int
    last_offset: int = -1
    last_msg_id: str = ""


class ExportState(msgspec.Struct, rename="camel"):
    """Progress of an export: its options, the mark of the target, the rows before it, the queues and store times."""

    options: dict[str, Any]
    mark: int
    rows: int
    queues: list[QueueState]
    times: Times = Times(None, None)


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
    times = Times(ms_of(from_time), ms_of(until))
    selected = wanted(times.from_ms, times.until_ms, key, tags, sql)
    topics = list(dict.fromkeys(topics))
    options = {
        "topics": topics,
        "format": kind,
        "from": text_of(from_time),
        "until": text_of(until),
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
                self._begin(writer, begun)
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

    def _begin(self, writer: RowWriter, state: ExportState) -> None:
        """Save the first state; a target without one could not be continued, and would be in the way."""
        try:
            self._save(state)
        except StoreError:
            writer.discard()
            raise

    def _save(self, state: ExportState) -> None:
        try:
            write_state(self._state_path, state)
        except OSError as error:
            raise StoreError(f"{self._state_path}: {error.strerror}") from error
