"""A store of a running broker, read by Spark while the broker removes old files of its log."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketbroker.analytics import messages
from tests.support.aging_broker import LOG_FILE, TOPIC, AgingBroker
from tests.support.our_servers import OurServers
from tests.support.streaming_query import run_to_end, start_query, stopped, written_rows
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LIMIT_S = 300
IN_A_FILE = 3  # messages


@pytest.fixture
def broker(servers: OurServers) -> AgingBroker:
    return AgingBroker(servers)


def numbers(spark: SparkSession, out: Path) -> list[int]:
    """Return the numbers of the messages that a stream has written."""
    rows = [row for row in written_rows(spark, out) if row[1] == TOPIC]
    return sorted(int(row[-1].split()[0]) for row in rows)


def test_a_query_names_the_file_that_was_removed_under_it(spark: SparkSession, broker: AgingBroker) -> None:
    for n in range(12):
        broker.send(n)
    read = partial(messages, spark, f"a={broker.store}", ["topic", "queue_offset"])
    planned = read(splitSize=LOG_FILE).rdd
    assert planned.getNumPartitions() > 2
    broker.clean(2)
    with pytest.raises(
        PySparkException, match=r"commitlog/0{15}(0{5}|65536): No such file .*\(a broker deletes old files\)"
    ):
        planned.count()
    assert sorted(row[1] for row in read().where(f"topic = '{TOPIC}'").collect()) == list(range(2 * IN_A_FILE, 12))


def test_a_stream_names_what_was_removed_unread_and_goes_on_if_it_may(
    spark: SparkSession, broker: AgingBroker, tmp_path: Path
) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def finish(**options: Any) -> None:
        given = {"available_now": True, **options}
        run_to_end(lambda: start_query(spark, f"a={broker.store}", out, checkpoint, **given), LIMIT_S)

    for n in range(6):
        broker.send(n)
    finish()
    for n in range(6, 24):
        broker.send(n)
    broker.clean(6)
    with pytest.raises(StreamingQueryException, match="were removed before they were read; set the option failOnData"):
        finish()
    assert numbers(spark, out) == list(range(6))
    finish(failOnDataLoss=False)
    assert numbers(spark, out) == [*range(6), *range(6 * IN_A_FILE, 24)]


def test_a_stream_that_keeps_up_loses_nothing_while_the_log_is_cleaned(
    spark: SparkSession, broker: AgingBroker, tmp_path: Path
) -> None:
    out, at_once = tmp_path / "out", 2 * IN_A_FILE

    def is_there(end: int, query: StreamingQuery) -> bool:
        return numbers(spark, out) == list(range(end)) or not query.isActive

    with stopped(start_query(spark, f"a={broker.store}", out, tmp_path / "checkpoint")) as query:
        for first in range(0, 4 * at_once, at_once):
            for n in range(first, first + at_once):
                broker.send(n)
            wait_until(partial(is_there, first + at_once, query), "rows are missing", LIMIT_S)
            broker.clean(1)
        assert query.isActive
    assert int(broker.log_files()[0].name) == 4 * LOG_FILE
