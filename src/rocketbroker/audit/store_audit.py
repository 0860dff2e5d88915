"""Offline check of a whole store: consistency of CommitLog, ConsumeQueues, index, checkpoint and tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.index_audit import IndexAudit, index_paths
from rocketbroker.audit.log_audit import LogAudit, LogLookup
from rocketbroker.audit.queue_audit import QueueFolder, QueuesAudit, open_local, queue_folders
from rocketbroker.audit.table_audit import audit_checkpoint, check_config, check_consumer_offsets, consumer_offset
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.storefile.audit_rules import AuditRule, Finding, Severity
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.file_rules import deleted_before
from rocketbroker.codec.storefile.index_file_layout import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
from rocketbroker.codec.storefile.index_image import IndexImage
from rocketbroker.codec.storefile.store_file import offset_files
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.codec.storefile.window_messages import WindowMessages
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.local_file import CommitLogFile, lock_holders, measure
from rocketbroker.store.clean import topic_deletion
from rocketbroker.store.recovery.store_lock import REVIVE_GROUP, check_readable, foreign_parts, open_pops


def read_state(config: MessageStoreConfig) -> StoreState:
    """Read the state of the store that ``config`` names."""
    holders = lock_holders(Path(config.store_path_root_dir) / "lock")
    try:
        checkpoint = config.checkpoint_path.read_bytes()
    except OSError:
        checkpoint = None  # the check of the checkpoint reports the fault
    return StoreState.of(config.abort_path.exists() or bool(holders), holders, checkpoint)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of a check.

    ``topic`` limits the queues to one topic. ``limit`` findings of each rule and severity are kept, all are counted.
    ``sizes_given`` marks the file sizes of the settings as those of the store; otherwise they are read from the files.
    """

    check_crc: bool = True
    topic: str | None = None
    limit: int = 20
    sizes_given: bool = False


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Findings of a check. ``begin`` and ``end`` are physical offsets of the log; ``counts`` counts all findings."""

    root: Path
    state: StoreState
    messages: int
    begin: int
    end: int
    queues: int
    findings: list[Finding]
    counts: dict[tuple[AuditRule, Severity], int] = field(default_factory=dict)

    def count_of(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return sum(count for (_, each), count in self.counts.items() if each is severity)


def log_files(directory: Path) -> list[CommitLogFile]:
    """Return the files of the CommitLog by offset.

    Raises:
        StoreError: The folder does not exist, or a file cannot be read.
    """
    try:
        names = [path.name for path in directory.iterdir() if path.is_file()]
    except OSError as error:
        raise StoreError(f"{directory} is not a CommitLog: {error.strerror}") from error
    return [measure(file.base, Path(file.path)) for file in offset_files(dict.fromkeys(names, 0), str(directory))]


def audit(
    config: MessageStoreConfig, options: AuditOptions | None = None, progress: Callable[[int, int], None] | None = None
) -> AuditReport:
    """Check the store that ``config`` names, without writing or locking anything.

    ``progress`` receives the bytes of the log that were checked, and their total.

    Raises:
        StoreError: There is no store, or its log cannot be read.
    """
    return _Audit(config, options or AuditOptions(), progress).run()


class _Audit:
    def __init__(
        self, config: MessageStoreConfig, options: AuditOptions, progress: Callable[[int, int], None] | None
    ) -> None:
        self._config = config
        self._tell = progress
        self._options = options
        self._findings = Findings(options.limit)
        self._state = read_state(config)
        root = Path(config.store_path_root_dir)
        for part in foreign_parts(root):
            self._findings.add(AuditRule.FOREIGN_PART, part.path, 0, part.problem)
        try:
            files = log_files(config.commit_log_dir)
        except StoreError:
            check_readable(root)
            raise
        self._done, self._total = 0, sum(file.data_end for file in files)
        self._files = files

    def _progress(self, count: int) -> None:
        self._done += count
        if self._tell is not None:
            self._tell(self._done, self._total)

    def run(self) -> AuditReport:
        config, findings, state = self._config, self._findings, self._state
        tables = check_config(config.config_dir, findings)
        deleted = deleted_before(tables.get(topic_deletion.FILE_NAME, {}))
        queues = self._queues(deleted)
        walk = LogAudit(
            self._files,
            state,
            findings,
            file_size=config.mapped_file_size_commit_log if self._options.sizes_given else None,
            queued_end=queues.queued_end,
            check_crc=self._options.check_crc,
            progress=self._progress,
        )
        log = LogLookup(walk)
        sizes = (config.max_hash_slot_num, config.max_index_num) if self._options.sizes_given else None
        index = IndexAudit(config.index_dir, sizes, log, state, findings, deleted)
        messages, newest = 0, None
        for records in walk:
            window = WindowMessages(records)
            messages += len(window)
            newest = max(newest or 0, int(np.max(window.store_timestamps)))
            queues.take(window)
            index.take(window)
        queues.finish(log)
        index.finish()
        audit_checkpoint(config.checkpoint_path, newest, findings)
        count = len(queues.queues) + len(queues.batch_queues)
        offsets_path = config.config_dir / "consumerOffset.json"
        offsets = tables.get(offsets_path.name, {})
        check_consumer_offsets(offsets_path, offsets, queues.ends, state, findings)
        for text in open_pops(queues.ends, partial(consumer_offset, offsets, REVIVE_GROUP)):
            findings.add(AuditRule.POP_OPEN, offsets_path, 0, text)
        root, counts = Path(config.store_path_root_dir), dict(findings.counts)
        return AuditReport(root, state, messages, log.begin, log.end, count, findings.kept, counts)

    def _queues(self, deleted: Mapping[str, int]) -> QueuesAudit:
        config, topic = self._config, self._options.topic
        return QueuesAudit(
            (config.consume_queue_dir, config.batch_consume_queue_dir),
            self._files[0].base if self._files else 0,
            self._state,
            self._findings,
            parse_delay_levels(config.message_delay_level),
            deleted_before=deleted,
            wanted=lambda each: topic in {None, each},
        )


def with_sizes_of_files(config: MessageStoreConfig) -> MessageStoreConfig:
    """Return ``config`` with the store's file sizes; the index is enabled if its folder exists.

    Raises:
        StoreError: There is no CommitLog.
    """
    sizes: dict[str, object] = {"message_index_enable": config.index_dir.is_dir()}
    if of_log := _usual([file.size for file in log_files(config.commit_log_dir)]):
        sizes["mapped_file_size_commit_log"] = of_log
    if of_queues := _usual(_queue_file_sizes(config.consume_queue_dir, CONSUME_QUEUE_ENTRY)):
        sizes["mapped_file_size_consume_queue"] = of_queues
    if of_batches := _usual(_queue_file_sizes(config.batch_consume_queue_dir, BATCH_CONSUME_QUEUE_ENTRY)):
        sizes["mapper_file_size_batch_consume_queue"] = of_batches
    sizes["max_hash_slot_num"], sizes["max_index_num"] = _index_sizes(config)
    return config.model_copy(update=sizes)


def _usual(sizes: list[int]) -> int:
    known = [size for size in sizes if size]
    return max(set(known), key=known.count, default=0)


def _queue_file_sizes(directory: Path, layout: np.dtype[Any]) -> list[int]:
    return [QueueFolder(queue, layout).file_size for _, _, queue in queue_folders(directory)]


def _index_sizes(config: MessageStoreConfig) -> tuple[int, int]:
    for path in index_paths(config.index_dir):
        try:
            image = IndexImage(str(path), open_local)
        except (CodecError, StoreError):
            continue
        return image.slot_count, image.entry_count
    return MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
