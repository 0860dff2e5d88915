"""Hot keys, and the distribution of messages over queues."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import share
from rocketbroker.codec.message.message_const import KEY_SEPARATOR


def hot_keys(messages: DataFrame, top: int = 20) -> DataFrame:
    """Find the most frequent keys (property KEYS) of each topic.

    Args:
        messages: ``broker``, ``topic``, ``keys`` and ``size``.
        top: number of keys per topic; equally frequent keys are sorted by name.

    Returns:
        ``broker``, ``topic``, ``rank``, ``key``, ``messages``, ``bytes``, and ``share`` of the topic's messages with
        keys. A message with several keys counts for each.
    """
    keyed = messages.where(F.col("keys").isNotNull())
    parts = F.array_distinct(F.filter(F.split("keys", KEY_SEPARATOR), lambda part: part != ""))
    with_keys = keyed.select("broker", "topic", "size", parts.alias("parts")).where(F.size("parts") > 0)
    # Each message counts once more without a key: the total is from the same pass, also while a broker writes.
    keys_and_null = F.concat("parts", F.array(F.lit(None).cast("string")))
    each = with_keys.select("broker", "topic", "size", F.explode(keys_and_null).alias("key"))
    counted = each.groupBy("broker", "topic", "key").agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    topic = Window.partitionBy("broker", "topic")
    of_all = F.max(F.when(F.col("key").isNull(), F.col("messages"))).over(topic)
    by_key = counted.withColumn("keyed", of_all).where(F.col("key").isNotNull())
    rank = F.row_number().over(topic.orderBy(F.desc("messages"), "key"))
    ranked = by_key.withColumn("rank", rank).where(F.col("rank") <= top)
    rate = share(F.col("messages"), F.col("keyed")).alias("share")
    return ranked.select("broker", "topic", "rank", "key", "messages", "bytes", rate)


def skew(messages: DataFrame, topics: DataFrame | None = None) -> DataFrame:
    """Count the messages of each topic by queue.

    Args:
        messages: ``broker``, ``topic``, ``queue_id`` and ``size``.
        topics: the table ``topics``, to include queues without messages.

    Returns:
        ``broker``, ``topic``, ``queue_id``, ``messages``, ``bytes``, ``share`` of the topic's messages at that broker,
        and ``of_mean``, the messages as a multiple of the mean of its queues.
    """
    counted = messages.groupBy("broker", "topic", "queue_id").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes")
    )
    if topics is not None:
        counted = _with_empty_queues(counted, topics)
    topic = Window.partitionBy("broker", "topic")
    all_messages, queues = F.sum("messages").over(topic), F.count("*").over(topic)
    return counted.select(
        "*",
        share(F.col("messages"), all_messages).alias("share"),
        share(F.col("messages") * queues, all_messages).alias("of_mean"),
    )


def _with_empty_queues(counted: DataFrame, topics: DataFrame) -> DataFrame:
    """Return ``counted`` with rows of zeros for empty queues of topics with messages.

    The topics are appended to the rows instead of joined: a join would read the messages twice.
    """
    nothing = [F.lit(0).cast("long").alias(name) for name in ("messages", "bytes")]
    known = topics.where(F.col("write_queue_nums") > 0).select("broker", "topic", "write_queue_nums", *nothing)
    both = counted.unionByName(known, allowMissingColumns=True)
    used = F.max("messages").over(Window.partitionBy("broker", "topic"))
    all_queues = F.sequence(F.lit(0), F.col("write_queue_nums") - 1)
    queues = F.when(F.col("queue_id").isNull(), all_queues).otherwise(F.array("queue_id"))
    each = both.withColumn("used", used).where(F.col("used") > 0).withColumn("queue_id", F.explode(queues))
    sums = (F.sum(name).alias(name) for name in ("messages", "bytes"))
    return each.groupBy("broker", "topic", "queue_id").agg(*sums)
