"""The readers of the format rocketmq as Spark uses them, without Spark: progress goes through JSON."""

import json
import logging
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.spark import broker_queues, pull_reader, read_options
from rocketbroker.analytics.spark.broker_queues import BrokerQueues
from rocketbroker.analytics.spark.pull_options import batch_options, stream_options
from rocketbroker.analytics.spark.pull_reader import PullReader, PullStreamReader
from rocketbroker.analytics.spark.rocketmq import RocketMQ
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import CheckpointError, ConfigError, RemotingConnectError, RocketBrokerError, StoreError
from tests.support.fake_queues import FakeQueues

SCHEMA = pa.schema(
    [("broker", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())]
)
ORDERS, ORDERS_1, OTHER = MessageQueue("Orders", "a", 0), MessageQueue("Orders", "a", 1), MessageQueue("Other", "b", 0)
Offsets = dict[MessageQueue, list[int]]


class Clock:
    """Time that passes only while a reader sleeps, or when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += [seconds] if seconds else []


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pull_reader, "time", made)
    monkeypatch.setattr(read_options, "monotonic", made.monotonic)
    monkeypatch.setattr(read_options, "sleep", made.sleep)
    return made


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeQueues]:
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 0.0)
    monkeypatch.setattr(broker_queues, "RETRY_S", 0.0)
    with ExitStack() as readers:
        monkeypatch.setattr(Stream, "readers", readers, raising=False)
        yield FakeQueues({ORDERS: (10, 30), ORDERS_1: (0, 0), OTHER: (5, 12)})


def given(options: dict[str, str]) -> dict[str, str]:
    subscribed = {} if "subscribe" in options else {"subscribePattern": ".*"}
    return {"namesrvAddr": "127.0.0.1:9", **subscribed, **options}


def rows(reader: PullReader | PullStreamReader, partitions: list[Any]) -> Offsets:
    found: Offsets = {}
    for partition in partitions:
        for batch in reader.read(pickle.loads(cloudpickle.dumps(partition))):
            for row in batch.to_pylist():
                queue = MessageQueue(row["topic"], row["broker"], row["queue_id"])
                found.setdefault(queue, []).append(row["queue_offset"])
    return found


def batch(queues: FakeQueues, **options: str) -> Offsets:
    reader = PullReader(batch_options(given(options)), SCHEMA, lambda _address: queues)
    return rows(reader, reader.partitions())


class Stream:
    """A query: its progress is what Spark would have in the checkpoint."""

    readers: ExitStack  # closed by the end of the test

    def __init__(self, queues: FakeQueues, **options: str) -> None:
        self.queues, self.options = queues, options
        self.restart(**options)
        self.progress = self.keep(self.reader.initialOffset())

    @staticmethod
    def keep(progress: Any) -> Any:
        return json.loads(json.dumps(progress))

    def restart(self, **options: str) -> None:
        self.reader = PullStreamReader(stream_options(given(options)), SCHEMA, lambda _address: self.queues)
        self.readers.callback(self.reader.stop)

    def batch(self, limit: Any = None) -> Offsets:
        """Run one micro-batch."""
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = self.keep(self.reader.latestOffset(self.progress, limit))
        found = rows(self.reader, self.reader.partitions(self.progress, end))
        self.progress = end
        return found


@pytest.fixture
def stream(queues: FakeQueues) -> Stream:
    return Stream(queues)


def test_a_batch_reads_all_there_is(queues: FakeQueues):
    assert batch(queues) == {ORDERS: [*range(10, 30)], OTHER: [*range(5, 12)]}
    assert batch(queues, subscribe="Other", minPartitions="3") == {OTHER: [*range(5, 12)]}
    assert batch(queues, subscribePattern="Or.*", startingOffsets="earliest") == {ORDERS: [*range(10, 30)]}
    assert batch(FakeQueues({})) == {}


def test_a_batch_has_bounds(queues: FakeQueues):
    offsets = {
        "startingOffsets": '{"a": {"Orders": {"0": 12}}}',
        "endingOffsets": '{"a": {"Orders": {"0": 15, "1": -1}}}',
    }
    assert batch(queues, **offsets) == {ORDERS: [12, 13, 14], OTHER: [*range(5, 12)]}
    assert batch(queues, startingTimestamp="11", endingTimestamp="14") == {ORDERS: [11, 12, 13], OTHER: [11]}
    assert batch(queues, startingTimestamp='{"Orders": 29}') == {ORDERS: [29], OTHER: [*range(5, 12)]}
    reversed_offsets = {"startingOffsets": offsets["endingOffsets"].replace("-1", "0")}
    reversed_offsets["endingOffsets"] = offsets["startingOffsets"]
    with pytest.raises(ConfigError, match="startingOffsets has 15 for queue 0 of Orders at a, after 12 in endingOff"):
        batch(queues, **reversed_offsets)
    with pytest.raises(ConfigError, match="startingTimestamp is 14, not before endingTimestamp, 11"):
        batch(queues, startingTimestamp="14", endingTimestamp="11")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "Orders,None,Nil"}, r"127.0.0.1:9 have no queue to read of topic Nil, None; create it"),
        (
            {"startingOffsets": '{"a": {"Orders": {"0": 31}}}'},
            "startingOffsets has 31 for queue 0 of Orders at a, which ends at 30; give an offset up to that",
        ),
        ({"endingOffsets": '{"b": {"Other": {"0": 13}}}'}, "endingOffsets has 13 for queue 0 of Other at b"),
        ({"startingOffsets": '{"a": {"Orders": {"2": 1}}}'}, "names queue 2 of Orders at a, which is not read"),
        ({"endingTimestamp": '{"None": 1}'}, "endingTimestamp names topic None, which is not read"),
        ({"subscribe": "Other", "startingTimestamp": '{"Orders": 1}'}, "names topic Orders, which is not read"),
    ],
)
def test_wrong_bounds_are_named_by_the_driver(queues: FakeQueues, options: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        batch(queues, **options)


def test_columns_are_checked():
    wrong = pa.schema([("decompressed_body", pa.binary())])
    for kind, parse in ((PullReader, batch_options), (PullStreamReader, stream_options)):
        with pytest.raises(ConfigError, match="no column 'decompressed_body'; its columns are broker, topic"):
            kind(parse(given({})), wrong)


def test_columns_are_resolved_in_any_case_and_keep_their_spelling(queues: FakeQueues):
    schema = pa.schema([("Queue_Offset", pa.int64()), ("TOPIC", pa.string())])
    reader = PullReader(batch_options(given({"subscribe": "Other"})), schema, lambda _address: queues)
    (part,) = reader.partitions()
    found = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"Queue_Offset": offset, "TOPIC": "Other"} for offset in range(5, 12)]


def test_a_start_that_was_removed_is_a_loss(queues: FakeQueues, caplog: pytest.LogCaptureFixture):
    start = {"startingOffsets": '{"a": {"Orders": {"0": 7}}}', "subscribe": "Orders"}
    with pytest.raises(
        StoreError, match=r"queue 0 of Orders at a begins at 10: offsets 7 to 9 .* failOnDataLoss=false"
    ):
        batch(queues, **start)
    with caplog.at_level(logging.WARNING):
        assert batch(queues, **start, failOnDataLoss="false") == {ORDERS: [*range(10, 30)]}
    assert "the query continues after them" in caplog.text


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({10}, "10 to 10:"),
        ({14, 15, 16, 22}, "14 to 16, and 1 more are missing:"),
        ({29}, "29 to 29:"),
    ],
)
def test_messages_that_are_missing_are_a_loss(queues: FakeQueues, missing: set[int], message: str):
    queues.missing = missing
    with pytest.raises(StoreError, match=f"queue 0 of Orders at a has no messages at offsets {message}"):
        batch(queues, subscribe="Orders")
    assert batch(queues, subscribe="Orders", failOnDataLoss="false") == {ORDERS: sorted({*range(10, 30)} - missing)}


def test_what_was_removed_since_planning_is_a_loss(queues: FakeQueues):
    for fail in ("true", "false"):
        queues.spans[ORDERS] = (10, 30)
        options = batch_options(given({"subscribe": "Orders", "failOnDataLoss": fail}))
        reader = PullReader(options, SCHEMA, lambda _address: queues)
        partitions = reader.partitions()
        queues.spans[ORDERS] = (25, 40)
        if fail == "true":
            with pytest.raises(StoreError, match="has no messages at offsets 10 to 24: they were removed unread"):
                rows(reader, partitions)
        else:
            assert rows(reader, partitions) == {ORDERS: [*range(25, 30)]}


def test_a_removal_beyond_the_range_gives_none_of_later_ones(queues: FakeQueues):
    reader = PullReader(
        batch_options(given({"subscribe": "Orders", "failOnDataLoss": "false"})), SCHEMA, lambda _: queues
    )
    partitions = reader.partitions()
    queues.spans[ORDERS] = (35, 40)
    assert rows(reader, partitions) == {}
    queues.spans[ORDERS], queues.missing = (10, 40), {28, 29}
    assert rows(reader, partitions) == {ORDERS: [*range(10, 28)]}


def test_the_format_has_readers_of_all_columns():
    assert RocketMQ({}).schema().names == MESSAGE_SCHEMA.names
    source = RocketMQ(given({}))
    assert isinstance(source.reader(source.schema()), PullReader)
    assert isinstance(source.streamReader(source.schema()), PullStreamReader)


def test_a_stream_that_finds_no_server_leaves_no_thread():
    def fail(_config: object) -> BrokerQueues:
        raise RemotingConnectError("away")

    before = {*threading.enumerate()}
    with pytest.raises(RemotingConnectError, match="away"):
        PullStreamReader(stream_options(given({})), SCHEMA, fail).initialOffset()
    assert not {*threading.enumerate()} - before


def test_readers_go_to_tasks():
    for reader in (PullReader(batch_options(given({})), SCHEMA), PullStreamReader(stream_options(given({})), SCHEMA)):
        assert list(pickle.loads(cloudpickle.dumps(reader)).read(None)) == []


def test_a_stream_reads_each_message_once(queues: FakeQueues, stream: Stream):
    assert stream.progress == {"a": {"Orders": {"0": 10, "1": 0}}, "b": {"Other": {"0": 5}}}
    assert stream.batch() == {ORDERS: [*range(10, 30)], OTHER: [*range(5, 12)]}
    assert stream.batch() == {}
    queues.spans[ORDERS_1] = (0, 3)
    assert stream.batch() == {ORDERS_1: [0, 1, 2]}
    assert stream.reader.reportLatestOffset() == stream.progress
    stream.restart()
    assert stream.reader.reportLatestOffset() is None
    queues.spans[ORDERS] = (20, 31)
    assert stream.batch() == {ORDERS: [30]}


def test_a_stream_may_start_at_the_ends_or_a_time(queues: FakeQueues):
    latest = Stream(queues, startingOffsets="latest")
    assert latest.progress == {"a": {"Orders": {"0": 30, "1": 0}}, "b": {"Other": {"0": 12}}}
    queues.spans[ORDERS] = (10, 32)
    assert latest.batch() == {ORDERS: [30, 31]}
    assert Stream(queues, startingTimestamp="11").batch() == {ORDERS: [*range(11, 32)], OTHER: [11]}
    with pytest.raises(ConfigError, match="no queue to read of topic None"):
        Stream(queues, subscribe="None")


def test_an_error_of_a_stream_says_how_it_goes_on(queues: FakeQueues, stream: Stream):
    stream.batch()
    queues.failures = [RemotingConnectError("away")] * 2
    with pytest.raises(RemotingConnectError) as raised:
        stream.batch()
    goes_on = "Once the cause is gone, start the query again: it resumes from its checkpoint."
    assert raised.value.__notes__ == [goes_on]
    end = {"a": {"Orders": {"0": 40}}}
    (part,) = stream.reader.partitions({"a": {"Orders": {"0": 30}}}, end)
    with pytest.raises(CheckpointError, match="start with another checkpoint") as ended:
        list(stream.reader.read(part))
    assert not hasattr(ended.value, "__notes__")


def test_queues_that_never_had_a_message_are_not_asked_for_their_first_one(queues: FakeQueues):
    queues.spans = {ORDERS_1: (0, 0)}
    assert batch(queues) == {}
    assert queues.asked == ["topics", "queues", "max_offsets"]


def test_ten_thousand_topics_are_looked_up_once_for_each_plan_and_poll():
    count, options = 10_000, {"subscribePattern": "Topic.*"}
    queues = FakeQueues({MessageQueue(f"Topic{n}", f"broker-{n % 2}", 0): (0, n % 3) for n in range(count)})
    reader = PullReader(batch_options(given(options)), SCHEMA, lambda _address: queues)
    assert len(reader.partitions()) == count - count // 3 - 1
    assert queues.asked == ["topics", "queues", "max_offsets", "min_offsets"]
    stream = PullStreamReader(stream_options(given(options)), SCHEMA, lambda _address: queues)
    try:
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        assert len(stream.partitions(start, end)) == count - count // 3 - 1
        queues.asked.clear()
        assert stream.latestOffset(end, ReadAllAvailable()) == end
        assert queues.asked == ["max_offsets"]
        assert len(json.dumps(end)) < 30 * count, "the progress has a name and an offset for each queue"
    finally:
        stream.stop()


def test_a_new_queue_is_read_from_its_first_message(queues: FakeQueues, stream: Stream, clock: Clock):
    stream.batch()
    new = MessageQueue("New", "c", 0)
    queues.spans[new] = (4, 9)
    assert stream.batch() == {}
    assert "c" not in stream.progress
    clock.now += 30
    assert stream.batch() == {}
    assert stream.progress["c"] == {"New": {"0": 4}}
    queues.spans[new] = (4, 10)
    assert stream.batch() == {new: [*range(4, 10)]}


def test_a_limit_is_shared(queues: FakeQueues):
    queues.spans[OTHER] = (0, 5)
    stream = Stream(queues, maxOffsetsPerTrigger="10")
    assert stream.batch() == {ORDERS: [*range(10, 18)], OTHER: [0, 1]}
    assert stream.batch(ReadMaxRows(10)) == {ORDERS: [*range(18, 26)], OTHER: [2, 3]}
    assert stream.batch(ReadAllAvailable()) == {ORDERS: [*range(26, 30)], OTHER: [4]}
    with pytest.raises(ConfigError, match="ReadMaxBytes is not supported; use maxOffsetsPerTrigger"):
        stream.batch(ReadMaxBytes(10))


def test_an_idle_stream_is_polled_every_100_ms_with_known_routes(queues: FakeQueues, stream: Stream, clock: Clock):
    stream.batch()
    queues.asked.clear()
    for _ in range(5):
        assert stream.batch() == {}
    assert queues.asked == ["max_offsets"] * 5
    assert clock.now == pytest.approx(0.4)
    queues.spans[ORDERS] = (10, 32)
    stream.batch()
    before = clock.now
    queues.spans[ORDERS] = (10, 33)
    assert stream.batch() == {ORDERS: [32]}
    assert clock.now == before, "a stream that has messages does not wait"
    clock.now += 30
    queues.asked.clear()
    stream.batch()
    assert queues.asked == ["topics", "queues", "max_offsets"]


def test_a_broker_that_moved_is_found_at_once_by_new_routes(queues: FakeQueues, stream: Stream, clock: Clock):
    stream.batch()
    queues.spans[ORDERS] = (10, 31)
    queues.failures = [RemotingConnectError("the old address")]
    queues.asked.clear()
    assert stream.batch() == {ORDERS: [30]}
    assert queues.asked == ["max_offsets", "topics", "queues", "max_offsets", "min_offsets"]
    assert clock.slept == []


def test_a_broker_that_dies_between_lookups_is_sought_by_new_routes(
    queues: FakeQueues, stream: Stream, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 120.0)
    monkeypatch.setattr(broker_queues, "RETRY_S", 1.0)
    find, routes = queues.min_offsets, list[int]()

    async def fail_with_the_first_routes(wanted: Any) -> dict[MessageQueue, int]:
        routes.append(queues.asked.count("queues"))
        if routes[-1] == routes[0]:
            raise RemotingConnectError("died")
        return await find(wanted)

    monkeypatch.setattr(queues, "min_offsets", fail_with_the_first_routes)
    assert sum(map(len, stream.batch().values())) == 27
    assert len(routes) == 2
    assert clock.now < 120


def test_a_batch_waits_for_enough_messages_or_long_enough(queues: FakeQueues, clock: Clock):
    stream = Stream(queues, minOffsetsPerTrigger="7", maxTriggerDelay="1h", maxOffsetsPerTrigger="100")
    assert sum(map(len, stream.batch().values())) == 27, "the first one does not wait"
    queues.spans[ORDERS] = (10, 36)
    before = stream.progress
    assert stream.batch() == {}
    assert stream.progress == before
    queues.spans[OTHER] = (5, 13)
    assert stream.batch() == {ORDERS: [*range(30, 36)], OTHER: [12]}
    queues.spans[ORDERS] = (10, 37)
    assert stream.batch(ReadAllAvailable()) == {ORDERS: [36]}
    queues.spans[ORDERS] = (10, 38)
    assert stream.batch() == {}
    clock.now += 3600
    assert stream.batch() == {ORDERS: [37]}
    stream.restart(minOffsetsPerTrigger="7", maxTriggerDelay="1h")
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMinRows)
    queues.spans[ORDERS] = (10, 39)
    assert stream.batch() == {ORDERS: [38]}, "the first one does not wait"


def test_a_query_of_what_is_there_stops_at_what_was_there(queues: FakeQueues):
    stream = Stream(queues, maxOffsetsPerTrigger="8", minOffsetsPerTrigger="8")
    new = MessageQueue("New", "c", 0)
    queues.spans[new] = (0, 2)
    stream.reader.prepareForTriggerAvailableNow()
    queues.spans |= {ORDERS: (10, 50), new: (0, 9), MessageQueue("Later", "c", 0): (0, 5)}
    found: Offsets = {}
    for _ in range(20):
        before = stream.progress
        for queue, offsets in stream.batch().items():
            found.setdefault(queue, []).extend(offsets)
        if stream.progress == before:
            break
    assert found == {ORDERS: [*range(10, 30)], OTHER: [*range(5, 12)], new: [0, 1]}
    assert stream.progress == before


def test_what_was_removed_unread_ends_a_stream(queues: FakeQueues, stream: Stream):
    queues.spans[ORDERS] = (15, 30)
    with pytest.raises(StoreError, match="begins at 15: offsets 10 to 14 were removed before they were read; set the"):
        stream.batch()
    stream.restart(failOnDataLoss="false", maxOffsetsPerTrigger="22")
    assert stream.batch() == {ORDERS: [*range(15, 30)], OTHER: [*range(5, 12)]}


def test_a_shorter_queue_ends_a_stream_in_either_case(queues: FakeQueues, stream: Stream):
    stream.batch()
    queues.spans[ORDERS] = (0, 29)
    for fail in ("true", "false"):
        stream.restart(failOnDataLoss=fail)
        with pytest.raises(
            StoreError, match=r"queue 0 of Orders at a ends at 29, before offset 30 .* another checkpoint"
        ):
            stream.batch()
    queues.slaves = {ORDERS}
    assert stream.batch() == {}, "a slave may be behind"
    queues.spans[ORDERS] = (0, 32)
    assert stream.batch() == {ORDERS: [30, 31]}


def test_a_broker_that_leaves_is_read_on_when_it_returns(queues: FakeQueues, stream: Stream, clock: Clock):
    stream.batch()
    known = stream.progress
    gone = queues.spans.pop(ORDERS)
    for _ in range(3):
        assert stream.batch() == {}
        assert stream.progress == known
        assert stream.reader.reportLatestOffset() == known
    queues.spans[ORDERS] = (gone[0], 33)
    clock.now += 30
    assert stream.batch() == {ORDERS: [30, 31, 32]}


def test_a_queue_that_leaves_with_unread_messages_is_a_loss(queues: FakeQueues):
    stream = Stream(queues, maxOffsetsPerTrigger="10")
    stream.batch()
    del queues.spans[ORDERS]
    with pytest.raises(StoreError, match=r"queue 0 of Orders at a: no route leads there .* from offset 17 on"):
        stream.batch()


@pytest.mark.parametrize("others", [{"subscribe": "Orders"}, {"subscribePattern": "O.d.*"}])
def test_a_topic_that_is_no_longer_subscribed_to_is_named(
    queues: FakeQueues,
    others: dict[str, str],
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 120.0)
    monkeypatch.setattr(broker_queues, "RETRY_S", 1.0)
    stream = Stream(queues, subscribe="Orders,Other")
    stream.restart(**others)
    with pytest.raises(
        ConfigError,
        match="checkpoint has topic Other, which is no longer subscribed to; add it again, or set failOnDataLoss",
    ):
        stream.batch()
    assert clock.now == 0, "it is not looked for again"
    stream.restart(**others, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert stream.batch() == {ORDERS: [*range(10, 30)]}
        assert stream.batch() == {}
    assert len(caplog.messages) == 1
    assert stream.progress["b"] == {"Other": {"0": 5}}


def test_unread_messages_of_a_queue_that_left_are_a_loss(
    queues: FakeQueues, stream: Stream, caplog: pytest.LogCaptureFixture, clock: Clock
):
    del queues.spans[ORDERS], queues.spans[ORDERS_1]
    text = r"queue 0 of Orders at a and 1 more: no route leads there any more, and messages from offset 10 on may be"
    with pytest.raises(StoreError, match=f"{text} unread; bring the broker or topic back, or set failOnDataLoss=false"):
        stream.batch()
    stream.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert stream.batch() == {OTHER: [*range(5, 12)]}
        assert stream.batch() == {}
    assert len(caplog.messages) == 1
    queues.spans[ORDERS] = (10, 12)
    clock.now += 30
    assert stream.batch() == {ORDERS: [10, 11]}


def test_servers_that_are_away_are_asked_again(queues: FakeQueues, stream: Stream, monkeypatch: pytest.MonkeyPatch):
    queues.failures = [RemotingConnectError("away")]
    with pytest.raises(RemotingConnectError, match="away"):
        stream.batch()
    monkeypatch.setattr(broker_queues, "PATIENCE_S", 60.0)
    monkeypatch.setattr(broker_queues, "RETRY_S", 1.0)
    queues.failures = [RemotingConnectError("away")] * 3
    assert sum(map(len, stream.batch().values())) == 27
    queues.failures = [RocketBrokerError("broken")]
    with pytest.raises(RocketBrokerError, match="broken"):
        stream.batch()
