"""``mqstore check``: audit of a store by the rules of ``codec/storefile/audit_rules.py``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketbroker.app.mqstore.options import EXIT_ERRORS, AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.app.terminal import Column, Table, print_json, print_table, say
from rocketbroker.audit.findings import Finding
from rocketbroker.audit.store_audit import AuditReport, audit, sizes_of
from rocketbroker.audit.store_files import AuditOptions
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.recovery.store_lock import check_readable, foreign_parts


def check(
    directory: StoreDir,
    config_file: ConfigFile = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Check the queues of this topic only.")
    ] = None,
    no_crc: Annotated[bool, typer.Option("--no-crc", help="Skip the checksums of bodies.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="COUNT", help="Findings to show for each rule; all are counted.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Check a store; exit with 1 if it has errors."""
    with reading_a_store():
        config = store_config(directory, config_file)
        options = AuditOptions(check_crc=not no_crc, topic=topic, limit=limit)
        report = run_audit(config, options if config_file is None else sizes_of(config, options))
    print_json(as_data(report)) if as_json else print_report(report)
    if report.count_of(Severity.ERROR):
        raise typer.Exit(EXIT_ERRORS)


def run_audit(config: MessageStoreConfig, options: AuditOptions) -> AuditReport:
    """Check a store and what of it only Apache's broker can read, and show a progress bar on a terminal.

    Raises:
        StoreError: The store does not exist, or its log cannot be read.
    """
    root = Path(config.store_path_root_dir)
    try:
        with _progress_bar() as progress:
            report = audit(config, options, progress)
    except StoreError:
        check_readable(root)
        raise
    for part in foreign_parts(root):
        report.found.add(AuditRule.FOREIGN_PART, str(part.path), 0, part.problem)
    return report


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Checking", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def as_data(report: AuditReport) -> dict[str, Any]:
    """Return the report as ``--json`` prints it."""
    return {
        "store": str(report.root),
        "cleanStop": not report.state.unclean,
        "lockedBy": list(report.state.holders),
        "messages": report.messages,
        "minOffset": report.begin,
        "maxOffset": report.end,
        "queues": report.queues,
        "errors": report.count_of(Severity.ERROR),
        "warnings": report.count_of(Severity.WARNING),
        "rules": [
            {"rule": rule.value, "severity": severity.value, "count": count, "meaning": rule.meaning}
            for (rule, severity), count in sorted(report.counts.items())
        ],
        "findings": [
            {
                "rule": each.rule.value,
                "severity": each.severity.value,
                "path": each.path,
                "position": each.position,
                "detail": each.text,
            }
            for each in report.findings
        ],
    }


def print_report(report: AuditReport) -> None:
    """Print a report for people."""
    state = report.state
    how = "stopped cleanly" if not state.unclean else "not stopped cleanly; the next start repairs it"
    if state.is_open:
        how = f"open in process {', '.join(map(str, state.holders))}; data written during the check may look wrong"
    say(f"{report.root}: {how}")
    say(f"{report.messages:,} messages from {report.begin} to {report.end}, {report.queues:,} queues")
    if not report.counts:
        say("nothing is wrong")
        return
    print_table(_summary(report))
    for each in report.findings:
        say(_line(report.root, each))
    errors, warnings = report.count_of(Severity.ERROR), report.count_of(Severity.WARNING)
    say(f"{errors:,} errors, {warnings:,} warnings; {len(report.findings):,} shown")


def _summary(report: AuditReport) -> Table:
    columns = (Column("Rule"), Column("Severity"), Column("Count", right=True), Column("Meaning"))
    rows = [
        (rule.value, severity.value, f"{count:,}", rule.meaning)
        for (rule, severity), count in sorted(report.counts.items())
    ]
    return Table(columns, rows)


def _line(root: Path, found: Finding) -> str:
    path = Path(found.path)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{found.severity.value} {found.rule.value} {shown}:{found.position} {found.text}"
