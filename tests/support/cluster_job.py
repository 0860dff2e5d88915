"""A job as a user submits it to a cluster; prints one line of JSON. Argument: the stores."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rocketbroker.analytics import Scope, Selection, messages, register, sizes, store_roots, table


def where_it_ran(_: object) -> list[tuple[str, str]]:
    """Return the executor's directory, and the file that rocketbroker was imported from."""
    import rocketbroker

    return [(str(Path.cwd()), str(rocketbroker.__file__))]


if __name__ == "__main__":
    spark = SparkSession.builder.appName("cluster job").getOrCreate()
    register(spark)
    frame = messages(spark, sys.argv[1], ["broker", "topic", "size"], splitSize=1 << 17)
    counts = (
        frame.where("topic LIKE 'Topic%'").groupBy("broker", "topic").agg({"size": "sum", "topic": "count"}).collect()
    )
    job = sizes(Scope(spark, tuple(store_roots(sys.argv[1])), Selection())).collect()
    workers = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where_it_ran).collect()
    print("RESULT " + json.dumps({
        "counts": sorted([row[0], row[1], row["count(topic)"], row["sum(size)"]] for row in counts),
        "sizes": sorted([row["broker"], row["topic"], row["messages"], row["bytes"]] for row in job),
        "partitions": frame.rdd.getNumPartitions(),
        "executors": len({folder for folder, _ in workers}),
        "imported": sorted({source for _, source in workers}),
        "corrupt": table(spark, sys.argv[1], "corrupt_ranges").count(),
    }))  # fmt: skip
    spark.stop()
