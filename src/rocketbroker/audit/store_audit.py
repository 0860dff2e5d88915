"""Offline check of a whole store: consistency of CommitLog, queues, index, checkpoint and tables.

The check has four stages. Each takes one file or one queue at a time and returns values that can be pickled, so that
one process can run them in turn, and Spark can run those of a stage on many machines (``analytics/jobs/audit.py``).

1. ``survey`` reads each queue and each index file, and notes which of its entries lead into which file of the log.
2. ``audit_segment`` walks over one file of the log and matches its messages with their entries and keys.
3. ``judge`` puts together what the files of the log tell of one queue or index file.
4. ``judge_leftovers`` tells of messages and keys without an entry, unless a wrong entry has been told of instead.

Nothing but the log's own records is taken for granted. A file of the log is the unit of stage 2 because records do not
span files, and because the end of a torn log is known only by what follows: the files after a torn one do not count,
whatever their messages matched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rocketbroker.audit.findings import Finding, Findings
from rocketbroker.audit.index_audit import (
    CheckedIndexFile,
    IndexAudit,
    IndexEvidence,
    IndexFile,
    IndexFileAudit,
    MissingKeys,
    index_files,
    index_spans,
    judge_missing_keys,
)
from rocketbroker.audit.log_audit import CheckedLog, LogAudit, LogPart, Range, check_log_files
from rocketbroker.audit.queue_audit import (
    QueueEvidence,
    QueueJudge,
    QueuesAudit,
    QueueSurvey,
    UnqueuedMessages,
    judge_missing_queue,
    judge_unqueued,
    survey_queue,
)
from rocketbroker.audit.store_files import (
    COMMIT_LOG,
    AuditOptions,
    LocalStore,
    LogSegment,
    QueueFolder,
    Spans,
    StoreFacts,
    StoreFolder,
    log_segments,
    queue_name,
    queue_paths,
    read_state,
    usual,
)
from rocketbroker.audit.table_audit import (
    CONSUMER_OFFSETS,
    DELETED_TOPICS,
    ConsumerOffsets,
    check_checkpoint_file,
    check_consumer_offsets,
    check_tables,
    consumer_offsets,
)
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.file_rules import deleted_before
from rocketbroker.codec.storefile.index_file_layout import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM, file_size
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from rocketbroker.codec.storefile.store_file import offset_files
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages
from rocketbroker.common.config import MessageStoreConfig


class Plan(NamedTuple):
    """Work of a check, and what is known before it; ``units`` are the paths of queues, and index files."""

    facts: StoreFacts
    units: list[str | IndexFile]
    gaps: list[Range]


def plan(
    folder: StoreFolder,
    segments: Sequence[LogSegment],
    state: StoreState,
    options: AuditOptions,
    delay_levels: Mapping[int, int],
    findings: Findings,
) -> Plan:
    """Check the tables, list the files of a store, and check the CommitLog's sizes.

    The files of the log are listed first, by the caller: a broker that writes meanwhile enters messages only after it
    has stored them.
    """
    tables = check_tables(folder, findings)
    facts = StoreFacts(
        tuple(segments),
        state,
        options,
        delay_levels,
        deleted_before(tables.get(DELETED_TOPICS, {})),
        consumer_offsets(tables.get(CONSUMER_OFFSETS, {})),
    )
    queues = [path for path in queue_paths(folder) if facts.wants(queue_name(path)[0])]
    return Plan(facts, [*queues, *index_files(folder, facts, findings)], check_log_files(facts, findings))


@dataclass(slots=True)
class Surveys:
    """Surveys of all queues, by path, and of all index files."""

    queues: dict[str, QueueSurvey]
    index: list[tuple[IndexFile, Spans]]

    @property
    def queued_end(self) -> int:
        """Physical offset after the last message that any queue knows."""
        return max((queue.queued_end for queue in self.queues.values()), default=0)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Queue offset after the last message of each non-empty queue, by topic and queue number."""
        ordered = sorted(self.queues.values(), key=lambda queue: queue.path.startswith(BATCH_CONSUME_QUEUE))
        return {queue.name: queue.end_offset for queue in ordered if queue.end_offset}

    @classmethod
    def of(cls, surveyed: Sequence[QueueSurvey | tuple[IndexFile, Spans]]) -> "Surveys":
        """Put surveys together."""
        queues = {each.path: each for each in surveyed if isinstance(each, QueueSurvey)}
        return cls(queues, [each for each in surveyed if not isinstance(each, QueueSurvey)])


def survey(
    folder: StoreFolder, facts: StoreFacts, unit: str | IndexFile, findings: Findings
) -> QueueSurvey | tuple[IndexFile, Spans]:
    """Survey one queue or index file."""
    if isinstance(unit, IndexFile):
        return unit, index_spans(folder, facts, unit)
    return survey_queue(folder, facts, unit, findings)


class SegmentEvidence(NamedTuple):
    """Result of the check of one file of the log; by path of the queue or index file that it tells of."""

    log: LogPart
    queues: dict[str, QueueEvidence]
    index_files: dict[str, IndexEvidence]
    missing: MissingKeys


def audit_segment(
    folder: StoreFolder,
    facts: StoreFacts,
    surveys: Surveys,
    number: int,
    findings: Findings,
    progress: Callable[[int], None] = lambda _: None,
) -> SegmentEvidence | None:
    """Check one file of the log, its number among those with data; ``None`` if a broker removed it meanwhile.

    A broker removes entries after the messages that they lead to. So entries that are missing although the file of
    their messages still exists were missing before.
    """
    own = Findings(facts.options.limit)
    log = LogAudit(folder, facts, number, surveys.queued_end, own, progress)
    queues = QueuesAudit(folder, facts, surveys.queues, number, own)
    index = IndexAudit(folder, facts, surveys.index, number)
    for records in log:
        window = WindowMessages(records)
        queues.take(window)
        index.take(window)
    if log.part.removed or current_begin(folder, facts) > facts.with_data[number].base:
        return None
    findings.extend(own)
    return SegmentEvidence(log.part, queues.evidence(), index.evidence(), index.missing())


def current_begin(folder: StoreFolder, facts: StoreFacts) -> int:
    """Return the physical offset of the first byte of the log, which rises while a broker removes files."""
    where = facts.segments[0].path.rpartition("/")[0] if facts.segments else COMMIT_LOG
    bases = [file.base for file in offset_files(folder.files(where))]
    return max(facts.log_begin, min(bases, default=facts.log_begin))


def up_to_torn(parts: Sequence[LogPart]) -> list[LogPart]:
    """Return the parts of a log, in order, up to the first torn one."""
    ordered = sorted(parts, key=lambda part: part.number)
    sound = list(takewhile(lambda part: part.torn is None, ordered))
    return ordered[: len(sound) + 1]


Judged = tuple[UnqueuedMessages, Positions] | CheckedIndexFile


def judge(
    folder: StoreFolder,
    facts: StoreFacts,
    unit: QueueSurvey | IndexFile | str,
    evidence: Sequence[Any],  # QueueEvidence of a queue, IndexEvidence of an index file
    log: CheckedLog,
    findings: Findings,
) -> Judged | None:
    """Judge one queue or index file by the evidence about it in the order of the log; a path is of a missing queue."""
    if isinstance(unit, IndexFile):
        return IndexFileAudit(folder, facts, unit, evidence, log, findings).judge()
    if isinstance(unit, QueueSurvey):
        return QueueJudge(folder, facts, unit, evidence, log, findings).judge()
    judge_missing_queue(unit, evidence, log, findings)
    return None


class Excuses(NamedTuple):
    """Physical offsets where wrong entries of queues lead, and the checked index files by path."""

    leads: Positions
    index_files: dict[str, CheckedIndexFile]


def judge_leftovers(
    folder: StoreFolder,
    facts: StoreFacts,
    leftover: UnqueuedMessages | MissingKeys,
    excuses: Excuses,
    log: CheckedLog,
    findings: Findings,
) -> None:
    """Add findings on messages or keys without an entry that no other finding explains."""
    if isinstance(leftover, UnqueuedMessages):
        judge_unqueued(folder, facts, leftover, excuses.leads, findings)
    else:
        judge_missing_keys(leftover, excuses.index_files, facts, log, findings)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Findings of a check.

    ``begin`` and ``end`` are physical offsets of the log. ``ends`` has the queue offset after the last message of each
    queue by topic and number, ``offsets`` the groups that consume it with their consumer offsets.
    """

    root: Path
    state: StoreState
    messages: int
    begin: int
    end: int
    ends: Mapping[tuple[str, int], int]
    offsets: ConsumerOffsets
    queues: int
    found: Findings

    @property
    def findings(self) -> list[Finding]:
        """The findings that are kept."""
        return self.found.kept

    @property
    def counts(self) -> Mapping[tuple[AuditRule, Severity], int]:
        """Number of all findings by rule and severity."""
        return self.found.counts

    def count_of(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return self.found.count_of(severity)


def audit(
    config: MessageStoreConfig,
    options: AuditOptions | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> AuditReport:
    """Check the store that ``config`` names in this process, without writing or locking anything.

    ``progress`` receives the bytes of the log that were checked, and their total.

    Raises:
        StoreError: There is no store, or its log cannot be read.
    """
    folder, state, options = LocalStore(config), read_state(config), options or AuditOptions()
    findings = Findings(options.limit, folder.name_of)
    segments = log_segments(config.commit_log_dir)
    levels = parse_delay_levels(config.message_delay_level)
    checked = check(folder, plan(folder, segments, state, options, levels, findings), findings, progress)
    log, ends, offsets = checked.log, checked.surveys.ends, checked.facts.offsets
    root = Path(config.store_path_root_dir)
    return AuditReport(
        root, state, log.messages, log.begin, log.end, ends, offsets, len(checked.surveys.queues), findings
    )


class CheckedStore(NamedTuple):
    """Facts about a store, surveys of its queues and index, and its log; ``torn`` is the end that a start truncates."""

    facts: StoreFacts
    surveys: Surveys
    log: CheckedLog
    torn: Range | None


def check(folder: StoreFolder, planned: Plan, findings: Findings, progress: Callable[[int, int], None]) -> CheckedStore:
    """Do the planned work, all stages in turn; ``progress`` is that of :func:`audit`."""
    facts, units, gaps = planned
    done, total = 0, sum(segment.data_end for segment in facts.segments)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    surveys = Surveys.of([survey(folder, facts, unit, findings) for unit in units])
    evidence = []
    for number in range(len(facts.with_data)):
        found = audit_segment(folder, facts, surveys, number, findings, advance)
        evidence += [found] if found is not None else []
        if found is not None and found.log.torn is not None:
            break
    log = CheckedLog.of(facts, [each.log for each in evidence], gaps, current_begin(folder, facts))
    _judge_all(folder, facts, surveys, evidence, log, findings)
    check_checkpoint_file(folder, max(log.newest_ms.values(), default=None), findings)
    check_consumer_offsets(facts.offsets, surveys.ends, findings, unclean=facts.state.unclean)
    torn = next((each.log.torn for each in evidence if each.log.torn is not None), None)
    return CheckedStore(facts, surveys, log, torn)


def _judge_all(
    folder: StoreFolder,
    facts: StoreFacts,
    surveys: Surveys,
    evidence: Sequence[SegmentEvidence],
    log: CheckedLog,
    findings: Findings,
) -> None:
    by_path = dict[str, list[Any]]()
    for each in evidence:
        for path, one in [*each.queues.items(), *each.index_files.items()]:
            by_path.setdefault(path, []).append(one)
    known: list[QueueSurvey | IndexFile] = [*surveys.queues.values(), *(file for file, _ in surveys.index)]
    missing = by_path.keys() - {unit.path for unit in known}
    leftovers, leads, index = list[UnqueuedMessages | MissingKeys](), list[Positions](), dict[str, CheckedIndexFile]()
    for unit in [*known, *sorted(missing)]:
        path = unit if isinstance(unit, str) else unit.path
        judged = judge(folder, facts, unit, by_path.get(path, []), log, findings)
        if isinstance(judged, CheckedIndexFile):
            index[path] = judged
        elif judged is not None:
            leftovers.append(judged[0])
            leads.append(judged[1])
    excuses = Excuses(np.concatenate([np.empty(0, np.int64), *leads]), index)
    for leftover in [*leftovers, *(each.missing for each in evidence)]:
        judge_leftovers(folder, facts, leftover, excuses, log, findings)


def sizes_of(config: MessageStoreConfig, options: AuditOptions) -> AuditOptions:
    """Return ``options`` with the file sizes of the settings, to which those of the files are compared."""
    slots, entries = config.max_hash_slot_num, config.max_index_num
    size = config.mapped_file_size_commit_log
    return replace(options, log_file_size=size, slot_count=slots, index_file_size=file_size(slots, entries))


def with_sizes_of_files(config: MessageStoreConfig) -> MessageStoreConfig:
    """Return ``config`` with the store's file sizes; the index is enabled if its folder exists.

    Raises:
        StoreError: There is no CommitLog.
    """
    folder, facts = LocalStore(config), StoreFacts((), read_state(config))
    sizes: dict[str, object] = {"message_index_enable": config.index_dir.is_dir()}
    if of_log := usual([segment.size for segment in log_segments(config.commit_log_dir)]):
        sizes["mapped_file_size_commit_log"] = of_log
    names = {
        CONSUME_QUEUE: "mapped_file_size_consume_queue",
        BATCH_CONSUME_QUEUE: "mapper_file_size_batch_consume_queue",
    }
    for kind, name in names.items():
        paths = [path for path in queue_paths(folder) if path.startswith(f"{kind}/")]
        if of_queues := usual([QueueFolder(folder, path).file_size for path in paths]):
            sizes[name] = of_queues
    index = index_files(folder, facts, Findings(0))
    sizes["max_hash_slot_num"] = index[0].slot_count if index else MAX_HASH_SLOT_NUM
    sizes["max_index_num"] = index[0].entry_count if index else MAX_INDEX_NUM
    return config.model_copy(update=sizes)
