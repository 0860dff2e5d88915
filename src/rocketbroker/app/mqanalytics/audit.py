"""``mqanalytics audit``: check of stores by the rules of ``codec/storefile/audit_rules.py``."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketbroker.app.mqanalytics.running import (
    EXIT_FOUND,
    AsJson,
    Stores,
    camel,
    failing_in_one_line,
    known_stores,
    running,
)
from rocketbroker.app.terminal import Column, Table, print_json, print_table, say
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketbroker.analytics.files.store_root import StoreRoot
    from rocketbroker.analytics.jobs.audit import AuditOptions, AuditTables
    from rocketbroker.analytics.jobs.scope import NotRead, Scope

_DEFAULTS = MessageStoreConfig()
_RULES = {rule.value: rule for rule in AuditRule}
Found = list[dict[str, Any]]


def command(  # noqa: PLR0913, PLR0917 - typer makes an option of each argument
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
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most this many findings per rule; all are counted.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Check stores; exit code 3 if messages are lost, hidden or wrong."""
    with failing_in_one_line():
        levels, roots = parse_delay_levels(delay_levels), known_stores(stores)
        with running("Auditing") as (spark, _):
            from rocketbroker.analytics.jobs.audit import AuditOptions

            options = AuditOptions(SystemClock().time_ms(), levels, file_reserved_time, within, max_hash_slot_num)
            found, not_read = run(spark, roots, options, limit=limit, check_crc=not no_crc)
    counts = Counter[tuple[str, str, str]]()
    for each in found:
        counts[each["broker"], each["rule"], each["severity"]] = each["count"]
    errors, warnings = (_count(counts, severity) for severity in (Severity.ERROR, Severity.WARNING))
    (_print_json if as_json else _print)(found, counts, (errors, warnings), not_read)
    if errors:
        raise typer.Exit(EXIT_FOUND)


def run(
    spark: "SparkSession", roots: "tuple[StoreRoot, ...]", options: "AuditOptions", *, limit: int, check_crc: bool
) -> "tuple[Found, NotRead]":
    """Return ``limit`` findings of each broker, rule and severity, with ``count``, and the unreadable ranges."""
    from rocketbroker.analytics.columns.selection import EVERYTHING
    from rocketbroker.analytics.jobs.audit import audit
    from rocketbroker.analytics.jobs.audit_findings import Kept, but_for_removed, most_of_each_rule
    from rocketbroker.analytics.jobs.audited_stores import audited_stores, begins_moved
    from rocketbroker.analytics.jobs.scope import NotRead, Scope

    stores = audited_stores(roots, options.max_hash_slot_num)
    tables = _tables(Scope(spark, roots, EVERYTHING), options, check_crc=check_crc)
    with Kept() as kept:
        tables = replace(tables, corrupt_ranges=kept.keep_few(tables.corrupt_ranges))
        findings = audit(tables, stores, options, kept)
        found = most_of_each_rule(findings, limit).toArrow().to_pylist()
        # Tables are read one after another: files removed meanwhile are in some tables and not in others.
        if found and (begins := begins_moved(roots, stores)):
            found = most_of_each_rule(but_for_removed(findings, begins), limit).toArrow().to_pylist()
        unread = tables.corrupt_ranges.where("kind != 'wrong_body'").selectExpr("count(*) AS n", "sum(length) AS bytes")
        (totals,) = unread.toArrow().to_pylist()
    order = list(_RULES)
    found.sort(key=lambda each: (each["broker"], order.index(each["rule"]), each["physical_offset"] or 0))
    return found, NotRead(totals["n"], totals["bytes"] or 0)


def _tables(scope: "Scope", options: "AuditOptions", *, check_crc: bool) -> "AuditTables":
    from rocketbroker.analytics.jobs.audit import MESSAGE_COLUMNS, AuditTables

    slots = {"maxHashSlotNum": str(options.max_hash_slot_num)} if options.max_hash_slot_num else {}
    return AuditTables(
        messages=scope.messages(MESSAGE_COLUMNS),
        scheduled=_scheduled(scope),
        consume_queue=scope.table("consume_queue"),
        index=scope.table("index", **slots),
        corrupt_ranges=scope.table("corrupt_ranges", checkCrc=str(check_crc).lower()),
    )


def _scheduled(scope: "Scope") -> "DataFrame":
    """Return delayed messages through their queues, so that the properties of other messages are not read.

    Messages without an entry may be missing, since they are not compared. Stores without such queues are skipped:
    otherwise their whole log would be read.
    """
    from rocketbroker.analytics.columns.selection import Selection
    from rocketbroker.analytics.files.queue_files import queue_numbers
    from rocketbroker.analytics.files.store_files import open_folder
    from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
    from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE

    topic = RMQ_SYS_SCHEDULE_TOPIC
    stores = tuple(root for root in scope.stores if queue_numbers(open_folder(root), CONSUME_QUEUE, topic))
    delayed = replace(scope, stores=stores or scope.stores, selection=Selection(topics=frozenset({topic})))
    messages = delayed.messages(["broker", "physical_offset", "properties"])
    return messages if stores else scope.spark.createDataFrame([], messages.schema)


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
