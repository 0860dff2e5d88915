"""Errors of a failed export; exports themselves: tests/integration/test_export_and_replay.py."""

import pyspark

from rocketbroker.analytics.jobs.export import _refusal


def test_a_library_for_another_release_of_spark_is_named():
    said = (
        "An error occurred while calling o142.saveAsTable.\n"
        ": java.lang.IncompatibleClassChangeError: class x.SparkView can not implement View\n"
        "\tat java.base/java.lang.ClassLoader.defineClass1(Native Method)\n"
    )
    refusal = _refusal(said, "lake.table", "iceberg")
    assert str(refusal) == (
        f"this Spark session cannot write iceberg: its jars are not built for Spark {pyspark.__version__} "
        "(java.lang.IncompatibleClassChangeError: class x.SparkView can not implement View); it needs Iceberg's jar: "
        "add the package iceberg-spark-runtime for this release of Spark, or export to parquet or jsonl"
    )
    assert _refusal(said, "target", "parquet") is None
