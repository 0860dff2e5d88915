"""State of a store that an audit needs besides its tables: how it was stopped, its files and its ``config/``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.files.commit_log_files import commit_log_files
from rocketbroker.analytics.files.queue_files import queue_files
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot, Stores, store_roots
from rocketbroker.analytics.jobs.audit_findings import local_frame
from rocketbroker.analytics.log.queue_proof import all_queues
from rocketbroker.analytics.tables.index import damaged_index_files
from rocketbroker.analytics.tables.table import root_folder, table_schema
from rocketbroker.analytics.tables.table_reader import find_table, read_table
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_tables import is_table, load_table, rule_of_damage
from rocketbroker.codec.storefile.file_rules import (
    FileFault,
    check_checkpoint,
    check_log_sizes,
    check_queue_files,
    deleted_before,
)
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import CodecError, StoreError

_DELETED: Final = pa.schema({"broker": pa.string(), "topic": pa.string(), "mark": pa.int64()})
_DAMAGED: Final = pa.schema([(name, pa.string()) for name in ("broker", "rule", "severity", "detail")])
_CONFIG: Final = "config"
_OFFSETS: Final = "consumerOffset.json"
_CHECKPOINT: Final = "checkpoint"
_DELETED_TOPICS: Final = "deletedTopics.json"


@dataclass(frozen=True, slots=True)
class AuditedStore:
    """State of one store."""

    broker: str
    log_begin: int  # physical offset of the log's first byte; entries that point before it have expired
    file_size: int  # bytes of a commit-log file, 1 without files
    last_file: int  # physical offset of the active file
    state: StoreState
    deleted: dict[str, int]  # by deleted topic, the physical offset before which its messages were deleted
    damaged: tuple[tuple[AuditRule, str], ...]  # broken rule and reason, for unreadable, missing or wrongly sized files
    consumer_offsets: pa.Table  # rows of that table; empty if neither file nor backup can be read
    checkpoint: bytes | None = None


def audited_stores(stores: Stores, max_hash_slot_num: int = 0) -> list[AuditedStore]:
    """Read the state of ``stores``.

    A store with an ``abort`` file was not stopped cleanly, or a broker has it open. ``max_hash_slot_num`` is that of
    the brokers' settings, 0 to detect it in each index file.
    """
    return [_audited(root, max_hash_slot_num) for root in store_roots(stores)]


def begins_moved(stores: Stores, known: Sequence[AuditedStore]) -> dict[str, int]:
    """Return the start of each log whose first files were removed since ``known``, by broker."""
    begins = {store.broker: store.log_begin for store in known}
    now = {root.broker: files[0].base for root in store_roots(stores) if (files := commit_log_files(root))}
    return {broker: begin for broker, begin in now.items() if begin > begins[broker]}


def _audited(root: StoreRoot, slot_count: int) -> AuditedStore:
    folder, files = root_folder(root), commit_log_files(root)
    written = [file for file in files if file.data_end] or files
    sizes = [file.size for file in files]
    unclean, checkpoint = folder.read_if_there("abort") is not None, folder.read_if_there(_CHECKPOINT)
    tables, damaged = _config(folder)
    offsets, lost = _consumer_offsets(root)
    if lost and not any(_OFFSETS in why for _, why in damaged):
        damaged.append((AuditRule.CONFIG_DAMAGED, lost))
    damaged += [(AuditRule.INDEX_HEADER, why) for why in damaged_index_files(root, slot_count)]
    faults = [*check_log_sizes([(file.name, file.size) for file in files]), *_queue_faults(folder)]
    damaged += [(fault.rule, _place(folder, fault)) for fault in faults]
    return AuditedStore(
        root.broker,
        files[0].base if files else 0,
        max(set(sizes), key=sizes.count, default=0) or 1,
        written[-1].base if written else 0,
        StoreState.of(unclean, (), checkpoint),
        deleted_before(tables.get(_DELETED_TOPICS, {})),
        tuple(damaged),
        offsets,
        checkpoint,
    )


def _queue_faults(folder: StoreFolder) -> Iterator[FileFault]:
    for kind, topic, queue_id in all_queues(folder):
        yield from check_queue_files(queue_files(folder, kind, topic, queue_id))


def _place(folder: StoreFolder, fault: FileFault) -> str:
    return f"{folder.name_of(fault.path)}, position {fault.position}: {fault.detail}"


def _config(folder: StoreFolder) -> tuple[dict[str, dict[Any, Any]], list[tuple[AuditRule, str]]]:
    """Return the files of ``config/`` by name, and the faults of those that contain no table."""
    tables, damaged = dict[str, dict[Any, Any]](), list[tuple[AuditRule, str]]()
    for name in filter(is_table, folder.files(_CONFIG)):
        data = folder.read_if_there(f"{_CONFIG}/{name}")
        if data is None:
            continue  # a broker rewrote it meanwhile
        try:
            tables[name] = load_table(name, data)
        except CodecError as error:
            damaged.append((rule_of_damage(name), f"{folder.name_of(f'{_CONFIG}/{name}')}: {error}"))
    return tables, damaged


def _consumer_offsets(root: StoreRoot) -> tuple[pa.Table, str]:
    """Return the rows of the table ``consumer_offsets``, and the fault of its file, "" if it has none."""
    schema = table_schema(find_table("consumer_offsets"), None)
    try:
        return pa.Table.from_batches(read_table([root], "consumer_offsets"), schema), ""
    except StoreError as error:
        if error.__cause__ is not None:  # unreachable, not damaged
            raise
        return schema.empty_table(), str(error)


class OfStore:
    """State of each store (``AuditedStore``, ``StoreState``), as columns that depend on the ``broker`` of a row.

    They are literals: even a small join takes Spark longer to plan and to run. ``log_ends`` are the physical offsets
    after the last records, by broker; a store without records is left out.
    """

    def __init__(self, stores: list[AuditedStore], log_ends: Mapping[str, int]) -> None:
        self._stores = stores
        self._log_ends = log_ends

    def log_begin(self) -> Column:
        return self._column([store.log_begin for store in self._stores])

    def log_end(self) -> Column:
        return self._column([self._log_ends.get(store.broker, store.log_begin) for store in self._stores])

    def file_size(self) -> Column:
        return self._column([store.file_size for store in self._stores])

    def last_file(self) -> Column:
        return self._column([store.last_file for store in self._stores])

    def unclean(self) -> Column:
        return self._column([store.state.unclean for store in self._stores]).cast("boolean")

    def known_ms(self) -> Column:
        """Return the store time up to which log and queues were certainly on disk."""
        return self._column([store.state.known_ms for store in self._stores])

    def index_known_ms(self) -> Column:
        """Return the store time up to which the index was certainly on disk."""
        return self._column([store.state.index_known_ms for store in self._stores])

    def _column(self, values: Sequence[int]) -> Column:
        brokers = F.array(*[F.lit(store.broker) for store in self._stores])
        known = F.map_from_arrays(brokers, F.array(*[F.lit(value).cast("bigint") for value in values]))
        return F.element_at(known, F.col("broker"))


def deleted_frame(spark: SparkSession, stores: list[AuditedStore]) -> DataFrame:
    """Return a row for each topic that was deleted: ``broker``, ``topic``, ``mark``."""
    rows = [(store.broker, topic, mark) for store in stores for topic, mark in store.deleted.items()]
    return local_frame(spark, _table(rows, _DELETED))


def damage_frame(spark: SparkSession, stores: list[AuditedStore], newest: Mapping[str, int]) -> DataFrame:
    """Return a row for each fault of a file: ``broker``, ``rule``, ``severity``, ``detail``.

    ``newest`` has the store time of the newest message by broker.
    """
    rows = []
    for store in stores:
        damaged = list(store.damaged)
        if store.checkpoint is not None:
            faults = check_checkpoint(_CHECKPOINT, store.checkpoint, newest.get(store.broker))
            damaged += [(each.rule, f"{each.path}, position {each.position}: {each.detail}") for each in faults]
        rows += [(store.broker, rule.value, rule.severity.value, why) for rule, why in damaged]
    return local_frame(spark, _table(rows, _DAMAGED))


def offsets_frame(spark: SparkSession, stores: list[AuditedStore]) -> DataFrame:
    """Return the table ``consumer_offsets`` of the stores."""
    return local_frame(spark, pa.concat_tables([store.consumer_offsets for store in stores]))


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
