import json

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.offset_options import EARLIEST, LATEST, Bound
from rocketbroker.analytics.spark.read_options import TriggerLimits
from rocketbroker.analytics.spark.source_options import (
    OPTIONS,
    FactRows,
    encode_selection,
    encode_stores,
    source_options,
    table_of,
)
from rocketbroker.analytics.tables.table import TableOptions
from rocketbroker.common.errors import ConfigError


def test_what_holds_when_nothing_is_said():
    options = source_options({"path": "/data/a"})
    assert options.stores == (StoreRoot("a", "/data/a"),)
    assert (options.table.name, options.table_options) == ("messages", TableOptions(64 << 20, 0, check_crc=False))
    assert (options.selection, options.fail_on_data_loss) == (Selection(), True)
    assert (options.starts.default, options.ends.default) == (Bound(EARLIEST), Bound(LATEST))
    assert (options.limits, options.min_partitions, options.properties) == (TriggerLimits(), 1, None)


def test_each_option_in_any_case():
    given = {
        "PATHS": '["x=/data/a", "/data/b"]',
        "Table": "messages",
        "splitsize": "1000",
        "SELECTION": '{"queue_offsets":[3,5],"exact":true}',
        "fact": '{"name":"traffic","columns":["topic"],"options":{"interval_ms":9}}',
        "SUBSCRIBE": "T, U",
        "maxHashSlotNum": "50",
        "checkCrc": "TRUE",
        "startingoffsets": "Latest",
        "endingTimestamp": "5",
        "maxBytesPerTrigger": "9",
        "maxoffsetspertrigger": "8",
        "minOffsetsPerTrigger": "7",
        "maxTriggerDelay": "2s",
        "minPartitions": "6",
        "includeProperties": "KEYS,, a b ",
        "failOnDataLoss": "false",
    }
    options = source_options(given)
    assert [store.broker for store in options.stores] == ["x", "b"]
    assert (options.table.name, options.table_options) == ("messages", TableOptions(1000, 50, check_crc=True))
    assert options.selection == Selection(topics={"T", "U"}, queue_offsets=(3, 5), exact=True)
    assert options.fact == FactRows("traffic", ("topic",), {"interval_ms": 9})
    assert not options.fail_on_data_loss
    assert (options.starts.default, options.ends.default) == (Bound(LATEST), Bound(LATEST, 5))
    assert options.limits == TriggerLimits(8, 9, 7, 2.0)
    assert (options.min_partitions, options.properties) == (6, frozenset({"KEYS", "a b"}))
    others = {"path", "stores", "subscribePattern", "startingTimestamp", "endingOffsets"}
    assert {name.lower() for name in (*given, *others)} == {name.lower() for name in OPTIONS}


def test_a_batch_is_limited_to_its_subscription_starts_and_ends():
    options = source_options(
        {
            "path": "a=/x,b=/y",
            "subscribePattern": "O.*",
            "startingOffsets": '{"a": {"Orders": {"0": 7}}}',
            "endingTimestamp": '{"Orders": 9}',
            "selection": '{"tags": ["t"]}',
        }
    )
    both = Selection(tags={"t"}, topic_pattern="O.*", topic_times={"Orders": (None, 9)})
    assert options.selection_of("b") == both
    assert options.selection_of("a") == both.and_(Selection(queue_ranges={"Orders": {0: (7, None)}}))


def test_stores_may_be_given_by_name_and_place():
    stores = (StoreRoot("dc1/a", "/dc1/a"), StoreRoot("dc2/a", "s3://bucket/dc2/a,b"))
    assert source_options({"stores": encode_stores(stores)}).stores == stores
    assert [store.broker for store in source_options({"path": "/data/a, n=/data/b"}).stores] == ["a", "n"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs one or more stores; name them in load"),
        ({"path": ""}, "needs one or more stores; name them in load"),
        ({"paths": "[]"}, "needs one or more stores; name them in load"),
        ({"paths": "x"}, r"paths is invalid \(stores as a JSON list, which load"),
        ({"stores": '["x"]'}, r"stores is invalid \(stores as a JSON list of pairs of name and place"),
        ({"path": "x", "paths": '["y"]'}, "stores are named twice; set only one of path, paths, stores"),
        ({"path": "x", "selection": '{"since_ms":"abc"}'}, "Expected `int .*; write it by encode_selection"),
        ({"path": "x", "selection": '{"queue_offsets":[1]}'}, "array` of length 2, got 1 - at `.*queue_offsets`"),
        ({"path": "x", "selection": '{"topics":5}'}, "Expected `array . null`, got `int` - at `.*topics`"),
        ({"path": "x", "selection": '{"topics":[1]}'}, "Expected `str`, got `int` - at `.*topics"),
        ({"path": "x", "selection": '{"exact":"no"}'}, "Expected `bool`, got `str` - at `.*exact`"),
        ({"path": "x", "selection": '{"since_ms":2,"until_ms":1}'}, "since 2 is not before until 1"),
        (
            {"path": "x", "topic": "T"},
            r'format\("rocketmq_store"\) has no option \'topic\'; its options are path, paths,',
        ),
        ({"path": "x", "table": "queues"}, "table 'queues' is unknown; use one of messages, consume_queue, index"),
        ({"path": "x", "splitSize": "0"}, r"splitSize is '0'; give a number above 0 \(bytes that one task"),
        ({"path": "x", "splitSize": "1x"}, "splitSize is '1x'"),
        ({"path": "x", "splitSize": "0m"}, "splitSize is '0m'"),
        ({"path": "x", "maxHashSlotNum": "1m"}, "maxHashSlotNum is '1m'"),
        ({"path": "x", "maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger is '-1'"),
        ({"path": "x", "checkCrc": "yes"}, r"checkCrc is 'yes'; give true or false \(true: corrupt_ranges"),
        (
            {"path": "x", "selection": '{"topic":["T"]}'},
            "selection has unknown fields \\(topic\\); write it",
        ),
        ({"path": "x", "selection": "T"}, "selection is 'T' \\(messages to read"),
        ({"path": "x", "selection": '{"since_ms":5,"until_ms":5}'}, "since 5 is not before until 5"),
        ({"path": "x", "startingOffsets": "5"}, "startingOffsets is '5'; give earliest or latest"),
        (
            {"path": "x", "subscribe": "T", "startingOffsets": '{"a": {"U": {"0": 1}}}'},
            "startingOffsets has the topic U, which is not subscribed to; subscribe to it, or remove it",
        ),
        (
            {"path": "x", "subscribePattern": "T.*", "endingTimestamp": '{"U": 1}'},
            "endingTimestamp has the topic U, which is not subscribed to",
        ),
        ({"path": "x", "subscribePattern": "T", "selection": '{"topic_pattern": "U"}'}, "select by topic_pattern once"),
        ({"path": "x", "startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp is 9, not before ending"),
        ({"path": "x", "table": "topics", "minPartitions": "2"}, "minPartitions is for the table messages, not topics"),
        ({"path": "x", "table": "topics", "includeProperties": "a"}, "table topics has no column properties"),
        ({"path": "x", "kafka.group.id": "g"}, "no option 'kafka.group.id': a query needs no consumer group"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        source_options(options)


@pytest.mark.parametrize(
    ("given", "size"), [("7", 7), ("7b", 7), ("64k", 64 << 10), ("64M", 64 << 20), ("2 MiB", 2 << 20), ("1gb", 1 << 30)]
)
def test_sizes_may_have_a_unit(given: str, size: int):
    assert source_options({"path": "x", "splitSize": given}).table_options.split_size == size


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(since_ms=0, until_ms=9, brokers={"b", "a"}, keys={"é"}, physical_offsets=(0, 8)),
        Selection(topics=frozenset()),
        Selection(queue_ids={0}, tags={"A"}, queue_offsets=(0, 1), exact=True),
        Selection(topic_pattern="T.*", topic_times={"T": (1, None)}, queue_ranges={"é": {0: (None, 5), 12: (7, 7)}}),
    ],
)
def test_a_selection_goes_through_its_option(selection):
    assert source_options({"path": "x", "selection": encode_selection(selection)}).selection == selection


def test_the_table_is_known_before_the_stores():
    assert table_of({"table": "topics"}).name == "topics"
    assert table_of({}).name == "messages"
    assert json.loads(encode_stores([StoreRoot("a", "/a")])) == [["a", "/a"]]


def test_credentials_are_in_no_error():
    for options in ({"stores": '[["a","s3://k:s3cret@b"],[]]'}, {"paths": '["s3://k:s3cret@b",5]'}):
        with pytest.raises(ConfigError, match="is invalid") as refused:
            source_options(options)
        assert "s3cret" not in str(refused.value)
