"""Jobs against plain Python over what a plain loop reads, on a recorded and on made stores; what the commands print."""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.selection import EVERYTHING
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.jobs.compare import compare
from rocketbroker.analytics.jobs.message_jobs import (
    Messages,
    delays,
    hot_keys,
    lag,
    retries,
    retry_delays,
    sizes,
    skew,
    traffic,
)
from rocketbroker.analytics.jobs.scope import Scope
from rocketbroker.analytics.jobs.search import UNREADABLE_BODY, Pattern, search
from rocketbroker.common.errors import ConfigError
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.job_frames import found, frame, made_store, row, rows_of
from tests.support.retry_names import RETRY_NAMES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 1_795_255_162_876
HOUR = 3_600_000


def spark_plan(result: DataFrame) -> str:
    return str(result._jdf.queryExecution().executedPlan().toString())


def moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("made"))


@pytest.fixture(params=["recorded", "made"])
def store(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def by_topic(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    grouped = defaultdict(list)
    for each in rows:
        grouped[each["topic"]].append(each)
    return grouped


@pytest.mark.parametrize("job", [traffic, sizes, hot_keys, skew, delays, retry_delays])
def test_a_job_has_the_same_rows_over_stores_and_over_a_data_frame(
    spark: SparkSession, made: Path, job: Callable[[Messages], DataFrame]
) -> None:
    scope = Scope(spark, tuple(store_roots(f"a={made}")), EVERYTHING)
    over_stores, over_a_frame = found(job(scope)), found(job(frame(spark, rows_of(made))))
    assert sorted(map(repr, over_stores)) == sorted(map(repr, over_a_frame))
    assert bool(over_stores) is (job is not retry_delays), "the store has no retries"


@pytest.mark.soak
def test_a_job_takes_ten_thousand_topics(spark: SparkSession, tmp_path: Path) -> None:
    topics, writer = 10_000, CommitLogWriter(tmp_path / "store", file_size=1 << 24)
    for number in range(2 * topics):
        writer.append(topic=b"T%d" % (number % topics), queue_id=number // topics)
    configs = {f"T{number}": {"topicName": f"T{number}", "writeQueueNums": 4} for number in range(topics)}
    (writer.root / "config").mkdir()
    (writer.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": configs}))
    scope = Scope(spark, tuple(store_roots(f"a={writer.root}")), EVERYTHING)
    rows = found(skew(scope, scope.table("topics")))
    assert len(rows) == 4 * topics
    assert Counter((each["queue_id"], each["messages"]) for each in rows) == {
        (queue_id, int(queue_id < 2)): topics for queue_id in range(4)
    }
    assert len(found(traffic(scope))) == topics


# -- traffic


@pytest.mark.parametrize("interval", [60, 7])
def test_traffic_is_that_of_a_plain_loop(spark: SparkSession, store: Path, interval: int) -> None:
    messages, sizes_of = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for each in rows_of(store):
        start = each["store_timestamp"] // (interval * 1000) * interval * 1000
        messages[each["topic"], start] += 1
        sizes_of[each["topic"], start] += each["size"]
    rows = found(traffic(frame(spark, rows_of(store)), interval))
    assert {(r["topic"], r["from_time"]): (r["messages"], r["bytes"]) for r in rows} == {
        (topic, moment(start)): (count, sizes_of[topic, start]) for (topic, start), count in messages.items()
    }
    assert len(rows) == len(messages)
    assert {each["broker"] for each in rows} == {"a"}


def test_times_are_timestamps_or_numbers_and_null_outside_the_calendar(spark: SparkSession) -> None:
    numbers = frame(spark, [row(0), row(1, store_timestamp=(1 << 63) - 1), row(2, store_timestamp=-(1 << 63))])
    assert {(each["from_time"], each["messages"]) for each in found(traffic(numbers))} == {
        (moment(START // 60_000 * 60_000), 1),
        (None, 2),
    }
    as_times = frame(spark, [row()]).selectExpr(
        "broker", "topic", "size", "timestamp_millis(store_timestamp) AS store_timestamp"
    )
    assert found(traffic(as_times)) == found(traffic(frame(spark, [row()])))


# -- sizes, keys, queues


def test_sizes_are_those_of_a_plain_loop(spark: SparkSession, store: Path) -> None:
    rows = found(sizes(frame(spark, rows_of(store)), (50, 99.9)))
    expected = {topic: [each["size"] for each in of] for topic, of in by_topic(rows_of(store)).items()}
    assert {each["topic"]: (each["messages"], each["bytes"], each["least"], each["greatest"]) for each in rows} == {
        topic: (len(of), sum(of), min(of), max(of)) for topic, of in expected.items()
    }
    for each in rows:
        of = expected[each["topic"]]
        assert each["mean"] == pytest.approx(statistics.fmean(of))
        assert (each["p50"], each["p99_9"]) == pytest.approx(tuple(np.percentile(of, [50, 99.9])))


def test_hot_keys_are_those_of_a_plain_loop(spark: SparkSession, store: Path) -> None:
    rows = found(hot_keys(frame(spark, rows_of(store)), top=3))
    expected = []
    for topic, of in by_topic(rows_of(store)).items():
        keyed = [(each, {part for part in (each["keys"] or "").split(" ") if part}) for each in of]
        keyed = [(each, keys) for each, keys in keyed if keys]
        counts = Counter(key for _, keys in keyed for key in keys)
        for rank, (key, count) in enumerate(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3], 1):
            size = sum(each["size"] for each, keys in keyed if key in keys)
            expected.append(("a", topic, rank, key, count, size, pytest.approx(count / len(keyed))))
    assert sorted(map(tuple, (each.values() for each in rows))) == sorted(expected, key=lambda each: each[:3])


def test_a_repeated_key_of_a_message_counts_once(spark: SparkSession) -> None:
    (each,) = found(hot_keys(frame(spark, [row(keys="k  k "), row(1, keys=" "), row(2)])))
    assert (each["key"], each["messages"], each["share"]) == ("k", 1, 1.0)


def test_hot_keys_and_their_total_come_from_one_pass(spark: SparkSession) -> None:
    plan = spark_plan(hot_keys(frame(spark, [row(keys="k")])))
    assert plan.count("LocalTableScan") == 1, plan


def test_skew_is_that_of_a_plain_loop(spark: SparkSession, store: Path) -> None:
    rows = found(skew(frame(spark, rows_of(store))))
    counts = Counter((each["topic"], each["queue_id"]) for each in rows_of(store))
    of_topic = {topic: len(of) for topic, of in by_topic(rows_of(store)).items()}
    queues = Counter(topic for topic, _ in counts)
    assert {(r["topic"], r["queue_id"]): (r["messages"], r["share"], r["of_mean"]) for r in rows} == {
        (topic, queue): (
            count,
            pytest.approx(count / of_topic[topic]),
            pytest.approx(count * queues[topic] / of_topic[topic]),
        )
        for (topic, queue), count in counts.items()
    }


def test_skew_counts_queues_without_messages(spark: SparkSession) -> None:
    topics = spark.createDataFrame(
        [("a", "T", 4), ("a", "Other", 8), ("b", "T", 9), ("a", "None", 0)],
        "broker string, topic string, write_queue_nums int",
    )
    result = skew(frame(spark, [row(queue_id=n % 2) for n in range(6)] + [row(queue_id=7)]), topics)
    assert spark_plan(result).count("LocalTableScan") == 1  # of messages: topics are of another kind here
    rows = found(result)
    assert {each["queue_id"]: (each["messages"], each["of_mean"]) for each in rows} == {
        0: (3, pytest.approx(15 / 7)),
        1: (3, pytest.approx(15 / 7)),
        2: (0, 0),
        3: (0, 0),
        7: (1, pytest.approx(5 / 7)),
    }


# -- delays and retries


def test_delays_are_those_of_a_plain_loop(spark: SparkSession, store: Path) -> None:
    rows = found(delays(frame(spark, rows_of(store)), (50, 90)))
    left_out = ("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_", "rmq_sys_")
    expected = {
        topic: [each["store_timestamp"] - each["born_timestamp"] for each in of]
        for topic, of in by_topic(rows_of(store)).items()
        if not topic.startswith(left_out)
    }
    assert {each["topic"] for each in rows} == set(expected)
    for each in rows:
        of = expected[each["topic"]]
        assert (each["messages"], each["least_ms"], each["greatest_ms"]) == (len(of), min(of), max(of))
        assert (each["p50_ms"], each["p90_ms"]) == pytest.approx(tuple(np.percentile(of, [50, 90])))
        assert each["born_later"] == sum(one < 0 for one in of)


def test_an_extreme_born_time_fails_no_job(spark: SparkSession) -> None:
    (each,) = found(delays(frame(spark, [row(), row(1, born_timestamp=-(1 << 63))])))
    assert (each["messages"], each["least_ms"], each["greatest_ms"]) == (2, 47, 47)


def test_messages_written_by_brokers_have_no_delay(spark: SparkSession) -> None:
    topics = ["orders", "BenchmarkTest", "rmq_sys_wheel_timer", "TRANS_CHECK_MAX_TIME_TOPIC", "%DLQ%G"]
    rows = found(delays(frame(spark, [row(number, topic=topic) for number, topic in enumerate(topics)])))
    assert {each["topic"] for each in rows} == {"orders", "BenchmarkTest"}


def test_retries_of_pop_are_those_of_their_group(spark: SparkSession) -> None:
    rows = [
        row(number, topic=f"%RETRY%{name}", properties=properties, reconsume_times=number)
        for number, (name, properties, _) in enumerate(RETRY_NAMES)
    ]
    groups = {each["reconsume_times"]: each["group_name"] for each in found(retry_delays(frame(spark, rows)))}
    assert groups == {number: group for number, (_, _, group) in enumerate(RETRY_NAMES)}
    known = spark.createDataFrame([("a", "G", 16)], "broker string, group_name string, retry_max_times int")
    offsets = spark.createDataFrame(
        [("a", "G", "%RETRY%G+T", 0, 100)],
        "broker string, group_name string, topic string, queue_id int, consumer_offset long",
    )
    (told,) = found(retries(frame(spark, rows[2:3]), known, offsets, START))
    assert (told["group_name"], told["origin_topic"], told["messages"], told["waiting"]) == ("G", "T", 1, 0)


def test_retries_of_a_message_are_distinguished(spark: SparkSession) -> None:
    def retry(number: int, origin: str, times: int, stored: int) -> dict[str, Any]:
        return row(
            number,
            topic="%RETRY%G",
            reconsume_times=times,
            store_timestamp=START + stored,
            born_timestamp=START,
            properties={"ORIGIN_MESSAGE_ID": origin},
        )

    retried = [retry(0, "X", 1, 1000), retry(1, "Y", 1, 3000), retry(2, "X", 2, 5000), retry(3, "Z", 2, 7000)]
    rows = sorted(
        found(retry_delays(frame(spark, [*retried, row(4)]), (50,))), key=lambda each: each["reconsume_times"]
    )
    first, second = rows
    assert (first["group_name"], first["messages"], first["p50_ms"], first["with_previous"]) == ("G", 2, 2000, 0)
    assert first["greatest_previous_ms"] is None
    assert (second["messages"], second["least_ms"], second["greatest_ms"]) == (2, 5000, 7000)
    assert (second["with_previous"], second["p50_previous_ms"]) == (1, 4000)


def test_retries_and_dead_letters_are_counted_by_reason_and_age(spark: SparkSession) -> None:
    now = START + 100 * HOUR

    def back(number: int, topic: str, times: int, hours: float, **properties: str) -> dict[str, Any]:
        stored = now - round(hours * HOUR)
        return row(number, topic=topic, reconsume_times=times, store_timestamp=stored, properties=properties)

    messages = frame(
        spark,
        [
            back(0, "%RETRY%G", 1, 90, RETRY_TOPIC="T"),
            back(1, "%RETRY%G", 1, 0.5, RETRY_TOPIC="T"),
            back(2, "%RETRY%G", 2, 30, RETRY_TOPIC="T"),
            back(0, "%DLQ%G", 16, 2, RETRY_TOPIC="T"),
            back(1, "%DLQ%G", 3, 2, RETRY_TOPIC="T"),
            back(2, "%DLQ%G", 3, 2, RETRY_TOPIC="T", MAX_RECONSUME_TIMES="3"),
            back(0, "%DLQ%Other", 3, 2, DLQ_ORIGIN_TOPIC="U"),
            back(0, "T", 0, 1),
        ],
    )
    groups = spark.createDataFrame([("a", "G", 16)], "broker string, group_name string, retry_max_times int")
    offsets = spark.createDataFrame(
        [("a", "G", "%RETRY%G", 0, 1)],
        "broker string, group_name string, topic string, queue_id int, consumer_offset bigint",
    )
    rows = {(r["group_name"], r["reason"]): r for r in found(retries(messages, groups, offsets, now))}
    assert {key: (each["origin_topic"], each["messages"], each["waiting"]) for key, each in rows.items()} == {
        ("G", "retry"): ("T", 3, 2),
        ("G", "retries-used-up"): ("T", 2, 2),
        ("G", "sent-to-dead-letters"): ("T", 1, 1),
        ("Other", "dead-letter"): ("U", 1, 1),
    }
    waiting = rows["G", "retry"]
    assert [waiting[age] for age in ("under_1h", "under_1d", "under_3d", "older")] == [1, 0, 1, 0]
    assert waiting["oldest_waiting"] == moment(now - 30 * HOUR)


# -- lag


def test_lag_is_reported_by_queue_and_in_total(spark: SparkSession) -> None:
    taken = START + 10_000
    snapshots = spark.createDataFrame(
        [
            (taken, "a", "G", "T", 0, 1, 3),
            (taken, "a", "G", "T", 1, 5, 5),
            (taken, "a", "G", "Gone", 0, 1, None),
            (taken, "a", "G", "Old", 0, 1, 9),
            (taken + 1, "a", "G", "T", 0, 3, 3),
        ],
        "time_ms bigint, broker string, group_name string, topic string, queue_id int, consumer_offset bigint,"
        " max_offset bigint",
    )
    messages = frame(spark, [row(number, store_timestamp=START + number * 1000) for number in range(6)])
    rows = {(r["time"], r["topic"], r["queue_id"]): (r["lag"], r["behind_ms"]) for r in found(lag(snapshots, messages))}
    assert rows == {
        (moment(taken), "T", 0): (2, 9000),
        (moment(taken), "T", 1): (0, 0),
        (moment(taken), "Old", 0): (8, None),
        (moment(taken + 1), "T", 0): (0, 0),
    }
    by_group = {
        (r["time"], r["group_name"]): (r["lag"], r["behind_ms"]) for r in found(lag(snapshots, messages, "group"))
    }
    assert by_group == {(moment(taken), "G"): (10, 9000), (moment(taken + 1), "G"): (0, 0)}
    with pytest.raises(ConfigError, match="lag by 'day' is unknown; use one of queue, topic, group"):
        lag(snapshots, messages, "day")


def test_many_snapshots_are_not_sent_to_all_executors(spark: SparkSession) -> None:
    taken = "time_ms bigint, broker string, group_name string, topic string, queue_id int, consumer_offset bigint"
    snapshots = spark.createDataFrame([(START, "a", "G", "T", 0, 1, 3)], f"{taken}, max_offset bigint")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")  # what Spark does with sides that are not small
    try:
        assert "Broadcast" not in spark_plan(lag(snapshots, frame(spark, [row(1)])))
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


# -- search


def searched(spark: SparkSession, rows: list[dict[str, Any]], pattern: Pattern) -> list[dict[str, Any]]:
    messages = frame(spark, rows).withColumn("decompressed_body", F.expr("if(sys_flag = 1, null, body)"))
    return sorted(found(search(messages, pattern)), key=lambda each: (each["physical_offset"], each["found_in"]))


def test_search_finds_the_same_text_as_a_plain_loop(spark: SparkSession, made: Path) -> None:
    rows = searched(spark, rows_of(made), Pattern("body 17 "))
    expected = [each for each in rows_of(made) if b"body 17 " in each["body"]]
    assert [(r["physical_offset"], r["found_in"], r["msg_id"]) for r in rows] == [
        (each["physical_offset"], "body", each["msg_id"]) for each in expected
    ]
    assert rows[0]["excerpt"].startswith("body 17 body 17 ")
    assert rows[0]["store_timestamp"] == moment(expected[0]["store_timestamp"])


def test_regular_expressions_look_into_properties_and_bodies(spark: SparkSession, made: Path) -> None:
    rows = searched(spark, rows_of(made), Pattern(r"^K[13]\b|BODY 39[67] body", is_regex=True, ignore_case=True))
    in_keys = [r["physical_offset"] for r in rows if r["found_in"] == "property KEYS"]
    assert in_keys == [r["physical_offset"] for r in rows_of(made) if (r["keys"] or "").startswith(("k1", "k3"))]
    in_bodies = [r["physical_offset"] for r in rows if r["found_in"] == "body"]
    assert in_bodies == [
        r["physical_offset"] for r in rows_of(made) if r["body"].startswith((b"body 396 body", b"body 397 body"))
    ]
    assert searched(spark, rows_of(made), Pattern("k1", places=("body",))) == []


def test_a_body_that_cannot_be_unpacked_is_named(spark: SparkSession) -> None:
    (each,) = searched(spark, [row(body=b"needle", sys_flag=1)], Pattern("needle"))
    assert (each["found_in"], each["excerpt"]) == (UNREADABLE_BODY, None)


# -- compare


def test_a_store_equals_itself_and_differs_where_it_was_changed(spark: SparkSession, made: Path) -> None:
    rows = rows_of(made)
    changed = [{**each, "broker": "b"} for each in rows]
    changed[7] |= {"body": b"other", "flag": 9}
    changed[8] |= {"properties": {"TAGS": "u"}}
    del changed[10], changed[0]
    assert found(compare(frame(spark, rows), frame(spark, rows))) == []
    differing = {
        each["physical_offset"]: each for each in found(compare(frame(spark, rows), frame(spark, changed[:-1])))
    }
    assert {offset: (each["found"], each["where"], each["columns"]) for offset, each in differing.items()} == {
        rows[0]["physical_offset"]: ("only-in-first", "before", None),
        rows[7]["physical_offset"]: ("different", None, ["flag", "body"]),
        rows[8]["physical_offset"]: ("different", None, ["properties"]),
        rows[10]["physical_offset"]: ("only-in-first", "within", None),
        rows[-1]["physical_offset"]: ("only-in-first", "behind", None),
    }
    assert differing[rows[10]["physical_offset"]]["store_timestamp"] == rows[10]["store_timestamp"]
    swapped = found(compare(frame(spark, changed), frame(spark, rows)))
    assert Counter(each["found"] for each in swapped) == {"only-in-second": 2, "different": 2}


def test_messages_that_moved_in_the_log_are_compared_by_queue(spark: SparkSession) -> None:
    rows = [row(number, topic=topic) for topic in ("T", "U") for number in range(5)]
    moved = [{**each, "physical_offset": each["physical_offset"] + 9, "msg_id": "other"} for each in rows]
    assert found(compare(frame(spark, rows), frame(spark, moved), "queue")) == []
    (only,) = found(compare(frame(spark, rows), frame(spark, moved[:5] + moved[6:]), "queue"))
    assert (only["found"], only["where"], only["topic"], only["queue_offset"]) == ("only-in-first", "before", "U", 0)
    gone = found(compare(frame(spark, rows), frame(spark, moved[:5]), "queue"))
    assert [(each["where"], each["topic"]) for each in gone] == [("no-queue", "U")] * 5
    assert len(found(compare(frame(spark, rows), frame(spark, moved), "physical"))) == 20


def test_columns_may_be_left_out_of_a_comparison(spark: SparkSession) -> None:
    other = [row(flag=1)]
    assert len(found(compare(frame(spark, [row()]), frame(spark, other)))) == 1
    assert found(compare(frame(spark, [row()]), frame(spark, other), ignored=("flag",))) == []
    with pytest.raises(ConfigError, match="messages have no column 'flags'; their columns are broker, topic"):
        compare(frame(spark, [row()]), frame(spark, other), ignored=("flags",))
    with pytest.raises(ConfigError, match="compared by physical or queue, not by 'key'"):
        compare(frame(spark, [row()]), frame(spark, other), "key")
