"""Entry point for PySpark, which looks for a ``DefaultSource`` in all top-level modules named ``pyspark_*``."""

from rocketbroker.analytics.spark.rocketmq import RocketMQ as DefaultSource

__all__ = ["DefaultSource"]
