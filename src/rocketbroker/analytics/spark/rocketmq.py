"""The PySpark data source ``rocketmq``: messages sent to live brokers, which name servers name.

frame.write.format("rocketmq").option("namesrvAddr", "host:9876").option("topic", "T").mode("append").save()
stream.writeStream.format("rocketmq").option("namesrvAddr", "host:9876").option("checkpointLocation", path).start()
"""

from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rocketbroker.analytics.spark.rocketmq_store import ShortErrors
from rocketbroker.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketbroker.analytics.spark.message_writer import MessageStreamWriter, MessageWriter
    from rocketbroker.analytics.spark.sink_options import SinkOptions

W = TypeVar("W")


class RocketMQ(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

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
