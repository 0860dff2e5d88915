"""A user's Spark Connect program; prints one line of JSON.."""

import json
import sys

from pyspark.sql import SparkSession

from rocketbroker.analytics import Selection, create_views, from_body, messages, register, store_roots, table
from rocketbroker.analytics.jobs.export import export
from rocketbroker.analytics.jobs.message_jobs import traffic
from rocketbroker.analytics.jobs.scope import Scope
from tests.support.streaming_query import run_to_end


def streamed(spark: SparkSession, store: str, out: str) -> list[int]:
    """Return the physical offsets that a stream writes to Parquet."""
    stream = spark.readStream.format("rocketmq_store").schema("physical_offset bigint").load(store)
    writer = stream.writeStream.format("parquet").option("path", f"{out}/rows")
    writer = writer.option("checkpointLocation", f"{out}/checkpoint")
    run_to_end(writer.trigger(availableNow=True).start, 400)
    return sorted(row[0] for row in spark.read.parquet(f"{out}/rows").collect())


def copied(spark: SparkSession, namesrv: str, out: str) -> list[str]:
    """Send two messages, and return the bodies of those that a stream copies to another topic."""
    address = {"namesrvAddr": namesrv}
    rows = spark.createDataFrame([("first",), ("second",)], "body string")
    rows.write.format("rocketmq").options(**address, topic="Sent").mode("append").save()
    stream = spark.readStream.format("rocketmq").options(**address, subscribe="Sent").load().select("body")
    writer = stream.writeStream.format("rocketmq").options(**address, topic="Copied")
    writer = writer.option("checkpointLocation", f"{out}/copied")
    run_to_end(writer.trigger(availableNow=True).start, 400)
    found = spark.read.format("rocketmq").options(**address, subscribe="Copied").load().select("body")
    return sorted(bytes(row[0]).decode() for row in found.collect())


if __name__ == "__main__":
    address, store, damaged, out, namesrv = sys.argv[1:]
    spark = SparkSession.builder.remote(address).getOrCreate()
    assert "connect" in type(spark).__module__, type(spark)
    register(spark)
    create_views(spark, store)
    counted = spark.sql("SELECT topic, count(*) AS c FROM messages WHERE queue_id = 0 GROUP BY topic").collect()
    chosen = messages(spark, store, ["topic", "queue_id"], Selection(queue_ids={0}))
    scope = Scope(spark, tuple(store_roots(damaged)), Selection())
    by_minute = traffic(scope.messages(["broker", "topic", "store_timestamp", "size"]))
    parsed = from_body(messages(spark, store, ["decompressed_body"]), "json", "x int")
    print("RESULT " + json.dumps({
        "counts": sorted([row["topic"], row["c"]] for row in counted),
        "chosen": chosen.count(),
        "parsed": parsed.where("value IS NOT NULL").count(),
        "topics": sorted(row["topic"] for row in table(spark, store, "topics", ["topic"]).collect()),
        "streamed": streamed(spark, store, out),
        "copied": copied(spark, namesrv, out),
        "traffic": sum(row["messages"] for row in by_minute.collect()),
        "exported": export(scope.messages(), f"{out}/exported"),
        "not_read": scope.not_read(),
    }))  # fmt: skip
    spark.stop()
