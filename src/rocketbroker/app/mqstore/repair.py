"""``mqstore repair`` and ``mqstore truncate``, which open a store as a broker does.

A repair sets damaged derived files aside first, so that recovery builds them again.
Only files derived from the CommitLog are ever set aside. Recovery itself decides about the CommitLog.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqstore.check import print_report, run_audit
from rocketbroker.app.mqstore.options import (
    EXIT_ERRORS,
    EXIT_NOT_DONE,
    ConfigFile,
    StoreDir,
    fail,
    reading_a_store,
    store_config,
)
from rocketbroker.app.terminal import say
from rocketbroker.audit.store_audit import AuditReport, sizes_of, with_sizes_of_files
from rocketbroker.audit.store_files import AuditOptions
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetRecovery
from rocketbroker.broker.persist.config_manager import AnyConfigManager, encode_file
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.transaction.transactional_message_util import CID_SYS_RMQ_TRANS
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.config_tables import loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.file_system import LOCAL
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.logfile import damaged_files
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.recovery.store_lock import StoreLock

_QUEUE_RULES = frozenset(
    {
        AuditRule.QUEUE_FILE_MISSING,
        AuditRule.QUEUE_FILE_SIZE,
        AuditRule.QUEUE_ENTRY_UNREADABLE,
        AuditRule.QUEUE_ENTRY_BEYOND_LOG,
        AuditRule.QUEUE_ENTRY_MISMATCH,
        AuditRule.MESSAGE_NOT_QUEUED,
    }
)
_INDEX_RULES = frozenset(
    {
        AuditRule.INDEX_HEADER,
        AuditRule.INDEX_CHAIN,
        AuditRule.INDEX_ENTRY_UNREADABLE,
        AuditRule.INDEX_ENTRY_MISMATCH,
        AuditRule.INDEX_MISSING_KEY,
    }
)
# Nothing can rebuild data that only the CommitLog has.
_LOST_RULES = frozenset(
    {
        AuditRule.LOG_FILE_MISSING,
        AuditRule.LOG_HOLE,
        AuditRule.BLANK_SIZE,
        AuditRule.RECORD_MAGIC,
        AuditRule.RECORD_LENGTH,
        AuditRule.RECORD_POSITION,
        AuditRule.RECORD_CRC,
    }
)
# No messages are sent through this store.
_NO_HOST = bytes(8)


def to_set_aside(config: MessageStoreConfig, report: AuditReport) -> list[Path]:
    """Return the files and folders that recovery must rebuild, by all findings of a check that has errors.

    A single queue is rebuilt only by a walk over the whole log, which recovery makes for a missing index. Without an
    index all queues must be set aside for it.
    """
    broken = {rule for (rule, severity) in report.counts if severity is rule.severity}
    found = []
    if broken & _QUEUE_RULES:
        directories = config.consume_queue_dir, config.batch_consume_queue_dir
        found += [each for each in directories if each.is_dir()]
    if broken & _INDEX_RULES and config.index_dir.is_dir():
        found.append(config.index_dir)
    if AuditRule.CHECKPOINT_DAMAGED in broken and not report.state.unclean:
        found.append(config.checkpoint_path)
    return found


def beyond_repair(report: AuditReport) -> list[AuditRule]:
    """Return the rules whose findings cannot be repaired: only the CommitLog had the lost data."""
    return sorted(rule for rule, severity in report.counts if severity is Severity.ERROR and rule in _LOST_RULES)


def set_aside(config: MessageStoreConfig, paths: Sequence[Path]) -> list[Path]:
    """Rename files and folders to ``<name>.damaged``, and return their new paths (blocks).

    Raises:
        StoreError: A broker has the store open, or a file or folder cannot be renamed.
    """
    lock = StoreLock(Path(config.store_path_root_dir), config.abort_path)
    lock.acquire()
    try:
        return [_rename(path) for path in paths]
    finally:
        lock.release()


def _rename(path: Path) -> Path:
    try:
        return damaged_files.set_aside(path, LOCAL)
    except OSError as error:
        raise StoreError(f"{path} cannot be renamed to {path.name}.damaged: {error.strerror}") from error


def _topics(path: Path) -> dict[str, TopicConfig]:
    """Return the topics, which determine the kind of their queues; if they are unreadable, the folders do."""
    for each in (path, backup_of(path)):
        try:
            table = loads_config(each.read_bytes()).get("topicConfigTable")
            return msgspec.convert(table, dict[str, TopicConfig], strict=False)
        except (OSError, CodecError, msgspec.ValidationError):
            continue
    return {}


async def recover_store(
    config: MessageStoreConfig, locked: Callable[[], object], opened: Callable[[MessageStore], Awaitable[None]]
) -> None:
    """Open and close the store as a broker does; recovery logs its findings.

    Args:
        config: paths and sizes of the store.
        locked: called before the store is opened, when no broker can open it any more; may read its other files.
        opened: called once the store is open.

    Raises:
        StoreError: A broker has it open, or it cannot be opened.
    """
    topics = dict[str, TopicConfig]()
    store = MessageStore(config, _NO_HOST, NoListener(), SystemClock(), topics=topics)
    store.lock.acquire()
    try:
        locked()
        topics.update(_topics(config.config_dir / "topics.json"))
        await store.start()
    except BaseException:
        store.lock.release()
        raise
    try:
        await opened(store)
    finally:
        await store.stop()


def repair(
    directory: StoreDir,
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Repair; without it, only print the plan.")] = False,
) -> None:
    """Repair a store as a broker does at its start.

    Exit with 3 if it needs repair and --yes was not given, with 1 if errors remain.
    """
    with reading_a_store():
        given = store_config(directory, config_file)
        config = given if config_file is not None else with_sizes_of_files(given)
        options = AuditOptions() if config_file is None else sizes_of(config, AuditOptions())
        report = run_audit(config, options)
        print_report(report)
        if report.state.is_open:
            fail(f"{directory} is in use; stop the broker first")
        if not report.counts and not report.state.unclean:
            return
        damaged, lost = to_set_aside(config, report), beyond_repair(report)
        _tell_lost(lost)
        if not report.state.unclean and all(rule in lost for rule, _ in report.counts):
            say("There are no other errors; nothing was changed.")
            raise typer.Exit(EXIT_ERRORS)
        if not yes:
            _tell_plan(damaged)
            raise typer.Exit(EXIT_NOT_DONE)
        after = _repair(config, options, damaged)
    if after.count_of(Severity.ERROR):
        raise typer.Exit(EXIT_ERRORS)


def _tell_lost(lost: list[AuditRule]) -> None:
    if lost:
        say(f"\nRepair cannot fix {', '.join(lost)}: only the CommitLog had these messages. The records stay, and")
        say("consumers skip them. Restore the messages from a backup, or send them again.")


def _tell_plan(damaged: list[Path]) -> None:
    say("\nmqstore repair --yes would")
    for path in damaged:
        say(f"- rename {path} to {path.name}.damaged and rebuild it from the CommitLog")
    say(
        "- open and stop the store as a broker does: truncate torn ends, add missing entries, and move consumer offsets"
    )
    say("  that are beyond the end of their queue back to it")
    say("Nothing was changed. Copy the store first.")


async def _recover(config: MessageStoreConfig) -> None:
    """Recover the store, and set back consumer offsets beyond the end of their queue."""
    offsets = ConsumerOffsetManager(config.config_dir / "consumerOffset.json", SystemClock(), write_table)

    async def set_back(store: MessageStore) -> None:
        await OffsetRecovery(offsets, store.queues, _written_at_once).start()

    await recover_store(config, offsets.load, set_back)


def write_table(table: AnyConfigManager) -> None:
    """Write a table at once.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        replace_contents(table.path, table.encode())
    except OSError as error:
        raise StoreError(f"{table.path} cannot be written: {error.strerror}; repair again when it can") from error


async def _written_at_once() -> Collection[Path]:
    """Return no failed table: ``write_table`` writes at once and raises what fails."""
    return ()


def _repair(config: MessageStoreConfig, options: AuditOptions, damaged: list[Path]) -> AuditReport:
    for path in set_aside(config, damaged):
        say(f"set aside: {path}")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
    asyncio.run(_recover(config))
    say("\nafter the repair")
    report = run_audit(config, options)
    print_report(report)
    return report


def truncate(
    directory: StoreDir,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="CommitLog offset of the first record to drop.")],
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Truncate; without it, only print the plan.")] = False,
) -> None:
    """Drop all messages from a record's CommitLog offset on, with their entries and keys.

    Exit with 3 if --yes was not given, and with 2 if no record begins there.
    """
    with reading_a_store():
        given = store_config(directory, config_file)
        if not yes:
            say(f"mqstore truncate --yes would open {directory} as a broker does, drop all messages from {offset} of")
            say("its CommitLog on, set consumer offsets beyond the end of their queue back to it, and let the progress")
            say("of delayed messages, timer messages and transactions begin again.")
            say("Nothing was changed. Copy the store first.")
            raise typer.Exit(EXIT_NOT_DONE)
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
        asyncio.run(_truncate(given if config_file is not None else with_sizes_of_files(given), offset))


async def _truncate(config: MessageStoreConfig, offset: int) -> None:
    offsets = ConsumerOffsetManager(config.config_dir / "consumerOffset.json", SystemClock(), write_table)

    async def cut(store: MessageStore) -> None:
        end = store.commit_log.max_offset
        # First: a crash after the cut must not leave progress that counts what the cut drops.
        _forget_progress(config, offsets, store)
        replica = store.make_replica_log()
        await replica.start()
        try:
            await replica.truncate(offset)
        finally:
            await replica.stop()
        say(f"dropped {end - offset:,} bytes; the CommitLog ends at {offset}")
        for back in offsets.set_back(store.queues.max_offset_in_queue):
            say(back)
        offsets.flush()

    await recover_store(config, offsets.load, cut)


def _forget_progress(config: MessageStoreConfig, offsets: ConsumerOffsetManager, store: MessageStore) -> None:
    """Let deliveries and checks of transactions begin again.

    Their progress may count copies and commits among the dropped messages. A store that is a slave's next takes over
    its master's progress, which may be smaller, but progress does not go back where it is known. Should it be promoted
    before that, all delayed and timer messages that it still has are delivered again: rather twice than not at all.
    """
    replace_contents(config.config_dir / "delayOffset.json", encode_file(DelayOffsetSerializeWrapper()))
    timer = TimerProgress(config.config_dir / "timerProgress.json", store.flusher, write_table)
    timer.load()
    timer.forget(config.timer_precision_ms, config.timer_roll_window_slot * config.timer_precision_ms)
    offsets.remove_group(CID_SYS_RMQ_TRANS)
