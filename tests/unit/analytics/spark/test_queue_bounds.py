"""Starts and ends against the queues of stores: what exists is accepted, all else is an error that says what exists."""

import json
import shutil
from pathlib import Path

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.spark.offset_options import OFFSET_OPTIONS, Bounds, ending_bounds, starting_bounds
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.spark.queue_bounds import ENDLESS, bounds_selection, checked_bounds
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.queued_store import QueuedStore


def values(**options: object) -> OptionValues:
    texts = {name: given if isinstance(given, str) else json.dumps(given) for name, given in options.items()}
    return OptionValues("rocketmq_store", OFFSET_OPTIONS, texts)


def starts(**options: object) -> Bounds:
    return starting_bounds(values(**options))


def offsets_at(queues: dict[str, dict[int, int]], broker: str = "a") -> Bounds:
    return starts(startingOffsets={broker: queues})


def checked(store: QueuedStore, bounds: Bounds, *, fail_on_data_loss: bool = True) -> Bounds:
    return checked_bounds("starting", bounds, [StoreRoot("a", str(store.root))], fail_on_data_loss=fail_on_data_loss)


@pytest.fixture
def store(tmp_path: Path) -> QueuedStore:
    return QueuedStore(tmp_path / "store", 200)


def test_offsets_and_times_as_a_selection():
    given = values(
        startingOffsets={"a": {"T": {0: 7, 1: -1, 2: -2}}, "b": {"T": {0: 1}}},
        endingOffsets={"a": {"T": {0: 9}, "U": {3: -1, 4: 8}}},
    )
    assert bounds_selection(starting_bounds(given), ending_bounds(given), "a") == Selection(
        queue_ranges={"T": {0: (7, 9), 1: (None, None), 2: (None, None)}, "U": {3: (None, None), 4: (None, 8)}}
    )
    given = values(startingTimestamp={"T": 5}, endingTimestamp="9")
    assert bounds_selection(starting_bounds(given), ending_bounds(given), "a") == Selection(
        until_ms=9, topic_times={"T": (5, None)}
    )
    assert bounds_selection(starts(), ENDLESS, "a").is_all


def test_the_offsets_of_a_queue_are_accepted_from_its_begin_to_its_end(store: QueuedStore):
    end = store.end("Orders", 0)
    given = offsets_at({"Orders": {0: end, 1: 0, 2: -2}, "Refunds": {1: -1}})
    assert checked(store, given).offsets == {
        "a": {"Orders": {0: end, 1: 0, 2: -2}, "Refunds": {1: store.end("Refunds", 1)}}
    }


def test_an_offset_after_the_end_of_its_queue_is_an_error(store: QueuedStore):
    end = store.end("Orders", 0)
    text = f"startingOffsets has {end + 1} for queue 0 of Orders at a, where offsets are 0 to {end}; lower it"
    with pytest.raises(ConfigError, match=text):
        checked(store, offsets_at({"Orders": {0: end + 1}}))
    with pytest.raises(ConfigError, match="has 1 for queue 9 of Orders at a, where offsets are 0 to 0"):
        checked(store, offsets_at({"Orders": {9: 1}}))


def test_messages_that_are_not_in_their_queue_yet_count(store: QueuedStore):
    known = store.end("Orders", 0)
    store.append(60, ("Orders",), dispatched=False)
    end = store.end("Orders", 0)
    assert end > known
    assert checked(store, offsets_at({"Orders": {0: -1, 1: -1}})).offsets == {
        "a": {"Orders": {0: end, 1: store.end("Orders", 1)}}
    }
    checked(store, offsets_at({"Orders": {0: end}}))
    with pytest.raises(ConfigError, match=f"where offsets are 0 to {end}"):
        checked(store, offsets_at({"Orders": {0: end + 1}}))
    shutil.rmtree(store.root / "consumequeue")
    assert checked(store, offsets_at({"Orders": {0: -1}})).offsets["a"]["Orders"][0] == end


def test_an_offset_whose_message_was_removed_is_loss(store: QueuedStore):
    min(store.writer.directory.iterdir()).unlink()
    left = [row for row in store.rows if (row["topic"], row["queue_id"]) == ("Orders", 1)]
    begin, end = left[0]["queue_offset"], store.end("Orders", 1)
    assert begin > 1
    checked(store, offsets_at({"Orders": {1: begin}}))
    given = offsets_at({"Orders": {1: begin - 1}})
    with pytest.raises(
        StoreError,
        match=f"has {begin - 1} for queue 1 of Orders at a, where offsets are {begin} to {end}: messages were removed",
    ):
        checked(store, given)
    assert checked(store, given, fail_on_data_loss=False) == given


def test_unknown_brokers_and_topics_are_errors_that_name_known_ones(store: QueuedStore):
    with pytest.raises(
        ConfigError, match="startingOffsets has the broker 'b', which the stores do not have; there are"
    ):
        checked(store, offsets_at({"Orders": {0: 1}}, "b"))
    with pytest.raises(ConfigError, match=r"has the topic 'Order', which .*; there are Orders, OrdersEU, Refunds"):
        checked(store, offsets_at({"Order": {0: 1}}))
    with pytest.raises(ConfigError, match=r"startingTimestamp has the topic 'Refund', .*; there are Refunds, "):
        checked(store, starts(startingTimestamp={"Refund": 1}))


def test_a_topic_without_messages_begins_and_ends_at_0(store: QueuedStore):
    (store.root / "config").mkdir()
    (store.root / "config" / "topics.json").write_text('{"topicConfigTable": {"New": {}}}')
    assert checked(store, offsets_at({"New": {0: -1, 1: 0}})).offsets == {"a": {"New": {0: 0, 1: 0}}}
    with pytest.raises(ConfigError, match="has 1 for queue 0 of New at a, where offsets are 0 to 0"):
        checked(store, offsets_at({"New": {0: 1}}))
