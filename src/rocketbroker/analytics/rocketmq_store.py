"""The PySpark data source ``rocketmq_store``: messages of a store directory as rows.

rocketbroker.analytics.register(spark)
spark.read.format("rocketmq_store").load(store_dir)
spark.read.format("rocketmq_store").schema("topic string, queue_id int").load(store_dir)   # decodes these two only
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rocketbroker.analytics.decode_report import DecodeReport
from rocketbroker.analytics.message_reader import read_split
from rocketbroker.analytics.message_schema import MESSAGE_SCHEMA, check_schema
from rocketbroker.analytics.split import SPLIT_SIZE, Split, plan_splits
from rocketbroker.common.errors import ConfigError

FORMAT = "rocketmq_store"


def register(spark: SparkSession) -> None:
    """Make the format ``rocketmq_store`` known to ``spark``. Its Python workers must be able to import rocketbroker."""
    spark.dataSource.register(RocketMQStore)


class RocketMQStore(DataSource):
    """Options: ``path``, the store's root or commit-log directory; ``splitSize``, bytes read by one task."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns of ``message_schema.MESSAGE_SCHEMA``."""
        return from_arrow_schema(MESSAGE_SCHEMA)

    def reader(self, schema: StructType) -> "MessageReader":
        """A reader of the columns of ``schema``: the user's, or all."""
        path = self.options.get("path")
        if not path:
            raise ConfigError(f'format("{FORMAT}") reads one store directory: name it in load(...)')
        return MessageReader(path, schema, _split_size(self.options.get("splitSize", str(SPLIT_SIZE))))


@dataclass
class StorePartition(InputPartition):
    """What one task reads."""

    split: Split


class MessageReader(DataSourceReader):
    """Reads messages with the columns and types of ``schema``."""

    def __init__(self, path: str, schema: StructType, split_size: int) -> None:
        self._path = path
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._split_size = split_size
        check_schema(self._schema)

    def partitions(self) -> list[InputPartition]:
        """The store's splits, as far as it is written now."""
        return [StorePartition(split) for split in plan_splits(self._path, self._split_size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one split. What cannot be read is logged by the worker."""
        if isinstance(partition, StorePartition):  # Spark asks with None when there are no partitions
            yield from read_split(partition.split, self._schema, DecodeReport())


def _split_size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(f"splitSize is {text!r}; a number of bytes above 0 is expected")
    return int(text)
