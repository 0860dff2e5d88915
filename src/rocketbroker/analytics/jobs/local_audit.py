"""Audit of stores in this process, and what it shares with that by Spark (``audit.py``): its plan and its rows."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketbroker.analytics.columns.decode_report import NotRead
from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.table import root_folder
from rocketbroker.audit.findings import Finding, Findings
from rocketbroker.audit.store_audit import Plan, check, plan
from rocketbroker.audit.store_files import AuditOptions, LogSegment, StoreFolder
from rocketbroker.codec.storefile.store_state import StoreState

#: Columns of a finding; null where they do not apply to a rule.
COLUMNS: Final = ("broker", "rule", "severity", "topic", "queue_id", "queue_offset", "physical_offset", "detail")


def plan_store(
    root: StoreRoot, options: AuditOptions, delay_levels: Mapping[int, int]
) -> tuple[StoreFolder, Plan, Findings]:
    """Return the folder of a store, the work of its audit, and what planning has found.

    Raises:
        StoreError: the place is not a store.
    """
    folder = root_folder(root)
    findings = Findings(options.limit, folder.name_of)
    files = commit_log_files(root, measure_all=True)
    segments = [LogSegment(file.name, file.base, file.size, file.data_end) for file in files]
    unclean = folder.read_if_there("abort") is not None
    state = StoreState.of(unclean, (), folder.read_if_there("checkpoint"))
    return folder, plan(folder, segments, state, options, delay_levels, findings), findings


def audit_locally(
    stores: Stores,
    options: AuditOptions,
    delay_levels: Mapping[int, int],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[dict[str, Findings], NotRead]:
    """Audit like ``audit.audit``, without Spark, store by store.

    ``progress`` receives the bytes of a store's log that were checked, and their total.
    """
    found, ranges = dict[str, Findings](), list[tuple[int, int]]()
    for root in store_roots(stores):
        folder, work, findings = plan_store(root, options, delay_levels)
        checked = check(folder, work, findings, progress)
        ranges += [*checked.log.damaged, *([checked.torn] if checked.torn is not None else [])]
        found[root.broker] = findings
    return found, NotRead(len(ranges), sum(end - begin for begin, end in ranges))


def finding_row(broker: str, found: Finding) -> dict[str, Any]:
    """Return a finding as a row with ``COLUMNS``."""
    place = found.path if not found.position else f"{found.path}, position {found.position}"
    detail = found.detail if found.topic is not None else f"{place}: {found.detail}"
    severity, queue = found.severity.value, (found.topic, found.queue_id, found.queue_offset)
    return dict(zip(COLUMNS, (broker, found.rule.value, severity, *queue, found.physical_offset, detail), strict=True))
