"""The PySpark data source ``rocketmq``: messages of a cluster, by its name servers and brokers.

spark.read.format("rocketmq").option("namesrvAddr", "host:9876").option("subscribe", "Orders").load()
spark.readStream.format("rocketmq").option("namesrvAddr", "host:9876").option("subscribePattern", "Orders-.*").load()
frame.write.format("rocketmq").option("namesrvAddr", "host:9876").option("topic", "T").mode("append").save()
stream.writeStream.format("rocketmq").option("namesrvAddr", "host:9876").option("checkpointLocation", path).start()
"""

from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore, arrow_schema, spark_schema
from rocketbroker.analytics.spark.worker import Sent, ShortErrors, freeze_modules
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketbroker.analytics.spark.message_writer import MessageStreamWriter, MessageWriter
    from rocketbroker.analytics.spark.pull_reader import PullReader, PullStreamReader
    from rocketbroker.analytics.spark.sink_options import SinkOptions

# The client is imported on use: Spark imports this module in each session, to look for formats.

W = TypeVar("W")


def register(spark: SparkSession) -> None:
    """Register both formats with ``spark``.

    This is necessary if Spark's Python does not find ``pyspark_rocketmq`` and ``pyspark_rocketbroker``. It also saves
    the second that PySpark takes to search for formats.
    """
    spark.dataSource.register(RocketMQStore)
    spark.dataSource.register(RocketMQ)


class RocketMQ(Sent, DataSource):
    """The format; its options for reading are those of ``pull_options.PULL_OPTIONS``."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        """Return all columns."""
        from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA

        found = spark_schema(PULLED_SCHEMA, {each.name: each for each in PULLED_SCHEMA})
        freeze_modules()
        return found

    def reader(self, schema: StructType) -> "PullReader":
        """Return a reader of the columns of ``schema``."""
        from rocketbroker.analytics.spark.pull_options import batch_options
        from rocketbroker.analytics.spark.pull_reader import PullReader

        with ShortErrors():
            return PullReader(batch_options(self.options), arrow_schema(schema))

    def streamReader(self, schema: StructType) -> "PullStreamReader":  # noqa: N802 - Spark's name
        """Return a reader that follows topics."""
        from rocketbroker.analytics.spark.pull_options import stream_options
        from rocketbroker.analytics.spark.pull_reader import PullStreamReader

        with ShortErrors():
            return PullStreamReader(stream_options(self.options), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "MessageWriter":
        """Return a writer of a data frame; see ``message_rows.SINK_COLUMNS``."""
        from rocketbroker.analytics.spark.message_writer import MessageWriter

        return self._writer(MessageWriter, schema, 'mode("append")' if overwrite else "")

    def streamWriter(self, schema: StructType, overwrite: bool) -> "MessageStreamWriter":  # noqa: N802 - Spark's
        """Return a writer of a stream; see ``message_rows.SINK_COLUMNS``."""
        from rocketbroker.analytics.spark.message_writer import MessageStreamWriter

        return self._writer(MessageStreamWriter, schema, 'outputMode("append")' if overwrite else "")

    def _writer(self, kind: "Callable[[SinkOptions], W]", schema: StructType, instead: str) -> W:
        from rocketbroker.analytics.spark.message_rows import check_columns
        from rocketbroker.analytics.spark.sink_options import sink_options

        with ShortErrors():
            if instead:
                raise ConfigError(f"messages cannot be overwritten; use {instead}")
            options = sink_options(self.options)
            check_columns(schema, options.topic)
            return kind(options)
