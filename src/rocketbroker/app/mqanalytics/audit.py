"""``mqanalytics audit``: check of stores by the rules of ``codec/storefile/audit_rules.py``."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketbroker.app.mqanalytics.running import (
    EXIT_FOUND,
    AsJson,
    Engine,
    Stores,
    camel,
    failing_in_one_line,
    known_stores,
    progress_bar,
    running,
)
from rocketbroker.app.terminal import Column, Table, print_json, print_table, say
from rocketbroker.audit.findings import Findings
from rocketbroker.audit.store_files import AuditOptions, Expiry
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketbroker.analytics.columns.decode_report import NotRead
    from rocketbroker.analytics.files.store_root import StoreRoot

_DEFAULTS = MessageStoreConfig()
_RULES = {rule.value: rule for rule in AuditRule}
Found = list[dict[str, Any]]


def command(
    stores: Stores,
    no_crc: Annotated[bool, typer.Option("--no-crc", help="Do not compare bodies with their checksums.")] = False,
    file_reserved_time: Annotated[
        int, typer.Option("--file-reserved-time", min=1, help="The brokers' fileReservedTime, in hours.")
    ] = _DEFAULTS.file_reserved_time,
    within: Annotated[
        int, typer.Option("--within", min=0, help="Warn of unconsumed messages that expire within this many hours.")
    ] = 24,
    delay_levels: Annotated[
        str, typer.Option("--delay-levels", help="The brokers' messageDelayLevel.")
    ] = _DEFAULTS.message_delay_level,
    max_hash_slot_num: Annotated[
        int, typer.Option("--max-hash-slot-num", min=0, help="The brokers' maxHashSlotNum; 0 detects it in each file.")
    ] = 0,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="Check in this process (local), with Spark, or automatically: with Spark above 4 GiB of log or at a "
            "--master.",
        ),
    ] = Engine.auto,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most this many findings per rule; all are counted.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Check stores; exit code 3 if messages are lost, hidden or wrong."""
    with failing_in_one_line():
        levels, roots = parse_delay_levels(delay_levels), known_stores(stores)
        expiry = Expiry(SystemClock().time_ms(), file_reserved_time, within)
        options = AuditOptions(not no_crc, limit=limit, slot_count=max_hash_slot_num, expiry=expiry)
        if engine.resolve(roots) is Engine.local:
            found, not_read = run_locally(roots, options, levels)
        else:
            with running("Auditing") as (spark, _):
                found, not_read = run(spark, roots, options, levels)
    counts = Counter[tuple[str, str, str]]()
    for each in found:
        counts[each["broker"], each["rule"], each["severity"]] = each["count"]
    errors, warnings = (_count(counts, severity) for severity in (Severity.ERROR, Severity.WARNING))
    (_print_json if as_json else _print)(found, counts, (errors, warnings), not_read)
    if errors:
        raise typer.Exit(EXIT_FOUND)


def run(
    spark: "SparkSession", roots: "tuple[StoreRoot, ...]", options: AuditOptions, delay_levels: dict[int, int]
) -> "tuple[Found, NotRead]":
    """Return the kept findings, each with the ``count`` of its kind, and the unreadable ranges of the logs."""
    from rocketbroker.analytics.jobs.audit import audit

    return _rows(*audit(spark, roots, options, delay_levels))


def run_locally(
    roots: "tuple[StoreRoot, ...]", options: AuditOptions, delay_levels: dict[int, int]
) -> "tuple[Found, NotRead]":
    """Return the same as ``run``, found in this process."""
    from rocketbroker.analytics.jobs.local_audit import audit_locally

    with progress_bar("Auditing", "BarColumn") as update:
        found = audit_locally(roots, options, delay_levels, lambda done, total: update(completed=done, total=total))
    return _rows(*found)


def _rows(found: "Mapping[str, Findings]", not_read: "NotRead") -> "tuple[Found, NotRead]":
    from rocketbroker.analytics.jobs.local_audit import finding_row

    rows = [
        finding_row(broker, each) | {"count": findings.counts[each.rule, each.severity]}
        for broker, findings in found.items()
        for each in findings.kept
    ]
    order = list(_RULES)
    rows.sort(key=lambda each: (each["broker"], order.index(each["rule"]), each["physical_offset"] or 0))
    return rows, not_read


def _count(counts: Counter[tuple[str, str, str]], severity: Severity) -> int:
    return sum(count for (_, _, each), count in counts.items() if each == severity.value)


def _print_json(
    found: Found, counts: Counter[tuple[str, str, str]], totals: tuple[int, int], not_read: "NotRead"
) -> None:
    rules = [
        {"broker": broker, "rule": rule, "severity": severity, "count": count, "meaning": _RULES[rule].meaning}
        for (broker, rule, severity), count in counts.items()
    ]
    findings = [{camel(name): value for name, value in each.items() if name != "count"} for each in found]
    errors, warnings = totals
    print_json(
        {
            "job": "audit",
            "errors": errors,
            "warnings": warnings,
            "rules": rules,
            "findings": findings,
            "notRead": not_read._asdict(),
        }
    )


def _print(found: Found, counts: Counter[tuple[str, str, str]], totals: tuple[int, int], not_read: "NotRead") -> None:
    ranges = f"{not_read.ranges:,} {'range' if not_read.ranges == 1 else 'ranges'}, {not_read.bytes:,} bytes not read"
    if not found:
        say(f"nothing is wrong; {ranges}")
        return
    columns = (Column("Broker"), Column("Rule"), Column("Severity"), Column("Count", right=True), Column("Meaning"))
    rows = [
        (broker, rule, severity, f"{count:,}", _RULES[rule].meaning)
        for (broker, rule, severity), count in counts.items()
    ]
    print_table(Table(columns, rows))
    for each in found:
        say(_line(each))
    errors, warnings = (
        f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in zip(totals, ("error", "warning"), strict=True)
    )
    say(f"{errors}, {warnings}, {len(found):,} of them shown; {ranges}")


def _line(each: dict[str, Any]) -> str:
    queue = f" {each['topic']}/{each['queue_id']}" if each["topic"] is not None else ""
    offset = f" queue offset {each['queue_offset']}" if each["queue_offset"] is not None else ""
    return f"{each['severity']} {each['rule']} {each['broker']}{queue}{offset}: {each['detail']}"
