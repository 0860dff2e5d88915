"""Hot keys, and how evenly queues are filled."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.columns import share
from rocketbroker.codec.message.message_const import KEY_SEPARATOR


def hot_keys(messages: DataFrame, top: int = 20) -> DataFrame:
    """Find the keys (property KEYS) that most messages of a topic have.

    Args:
        messages: with ``broker``, ``topic``, ``keys`` and ``size``.
        top: so many keys of each topic; of equally frequent ones the first by name.

    Returns:
        ``broker``, ``topic``, ``rank``, ``key``, ``messages``, ``bytes``, and ``share`` of those messages of the topic
        that have keys. A message with several keys counts for each.
    """
    keyed = messages.where(F.col("keys").isNotNull())
    parts = F.array_distinct(F.filter(F.split("keys", KEY_SEPARATOR), lambda part: part != ""))
    with_keys = keyed.select("broker", "topic", "size", parts.alias("parts")).where(F.size("parts") > 0)
    # Each message once more, without a key: all are counted by the same pass, which a broker that writes cannot change.
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
        messages: with ``broker``, ``topic``, ``queue_id`` and ``size``.
        topics: with ``broker``, ``topic`` and ``write_queue_nums`` (the table ``topics``): has queues without messages
            counted as well.

    Returns:
        ``broker``, ``topic``, ``queue_id``, ``messages``, ``bytes``, ``share`` of the topic's messages at that broker,
        ``of_mean``: the messages as a multiple of what an even distribution would give.
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
    """Return ``counted`` with rows of zeros for queues of topics that have messages in others.

    The topics are put below the rows, not joined with them: a join would need the messages twice.
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
