"""``mqstore repair``: set damaged derived files aside, then recover the store as a broker does."""

import asyncio
import logging
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqstore.check import print_report, run_audit
from rocketbroker.app.mqstore.running import (
    EXIT_ERRORS,
    EXIT_NOT_DONE,
    ConfigFile,
    StoreDir,
    fail,
    reading_a_store,
    store_config,
)
from rocketbroker.app.terminal import say
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetRecovery
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.audit.store_audit import AuditOptions, AuditReport
from rocketbroker.store.audit.store_repair import beyond_repair, recover_store, set_aside, to_set_aside
from rocketbroker.store.audit.store_sizes import with_sizes_of_files
from rocketbroker.store.message_store import MessageStore


def command(
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
        options = AuditOptions(sizes_given=config_file is not None)
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
