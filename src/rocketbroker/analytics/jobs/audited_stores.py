"""What an audit has to know of each store besides its tables: how it was left, and which topics were deleted."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from rocketbroker.analytics.commit_log_files import commit_log_files
from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.store_files import StoreFolder
from rocketbroker.analytics.store_root import Stores, store_roots
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.codec.storefile.config_json import loads_config
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import CodecError

_STATES: Final = (
    "broker string, log_begin bigint, file_size bigint, last_file bigint, unclean boolean, known_ms bigint,"
    " index_known_ms bigint"
)
_DELETED: Final = "broker string, topic string, mark bigint"


@dataclass(frozen=True, slots=True)
class AuditedStore:
    """One store.

    Attributes:
        broker: its name in the tables.
        log_begin: physical offset of the first byte of the log; what leads before it was removed by age.
        file_size: bytes of a commit-log file, 1 without any.
        last_file: physical offset of the file that is written to.
        state: how the last broker left it.
        deleted: by topic the physical offset before which its messages were deleted with it.
    """

    broker: str
    log_begin: int
    file_size: int
    last_file: int
    state: StoreState
    deleted: dict[str, int]


def audited_stores(stores: Stores) -> list[AuditedStore]:
    """What there is to know of ``stores``.

    A store with an ``abort`` file was not stopped in order, or a broker has it open.

    Raises:
        StoreError: one of them is no store.
    """
    found = []
    for root in store_roots(stores):
        folder, files = open_folder(root), commit_log_files(root)
        written = [file for file in files if file.data_end] or files
        sizes = [file.size for file in files]
        unclean = folder.read_if_there("abort") is not None
        found.append(
            AuditedStore(
                root.broker,
                files[0].base if files else 0,
                max(set(sizes), key=sizes.count, default=0) or 1,
                written[-1].base if written else 0,
                StoreState(unclean, (), _checkpoint(folder)),
                _deleted(folder),
            )
        )
    return found


def _checkpoint(folder: StoreFolder) -> StoreCheckpoint:
    data = folder.read_if_there("checkpoint")
    try:
        return decode_checkpoint(data) if data is not None else StoreCheckpoint()
    except CodecError:
        return StoreCheckpoint()  # as after a first start: nothing is known


def _deleted(folder: StoreFolder) -> dict[str, int]:
    data = folder.read_if_there("config/deletedTopics.json")
    try:
        marks = loads_config(data).get("deleted") if data is not None else None
    except CodecError:
        return {}  # then what was deleted shows as messages without a queue, a warning
    return (
        {str(topic): mark for topic, mark in marks.items() if isinstance(mark, int)} if isinstance(marks, dict) else {}
    )


def state_frame(spark: SparkSession, stores: list[AuditedStore]) -> DataFrame:
    """A row for each store: ``broker``, ``log_begin``, ``file_size``, ``last_file``, ``unclean``, ``known_ms``,
    ``index_known_ms``."""
    rows = [
        (
            store.broker,
            store.log_begin,
            store.file_size,
            store.last_file,
            store.state.unclean,
            store.state.known_ms,
            store.state.index_known_ms,
        )
        for store in stores
    ]
    return spark.createDataFrame(rows, _STATES)


def deleted_frame(spark: SparkSession, stores: list[AuditedStore]) -> DataFrame:
    """A row for each topic that was deleted: ``broker``, ``topic``, ``mark``."""
    rows = [(store.broker, topic, mark) for store in stores for topic, mark in store.deleted.items()]
    return spark.createDataFrame(rows, _DELETED)
