import pytest

from rocketbroker.analytics.spark.offset_options import (
    EARLIEST,
    LATEST,
    OFFSET_OPTIONS,
    Bound,
    Subscription,
    check_order,
    ending_bounds,
    starting_bounds,
    subscription,
)
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.common.errors import ConfigError

TWO_QUEUES = '{"a": {"T": {"0": 7, "1": -2}}}'


def values(**options: str) -> OptionValues:
    return OptionValues("rocketmq", OFFSET_OPTIONS, options)


def parse(given: OptionValues) -> None:
    for read in (subscription, starting_bounds, ending_bounds):
        read(given)


def test_everything_is_read_when_nothing_is_said():
    assert starting_bounds(values()).of("a", "T", 0) == Bound(EARLIEST)
    assert ending_bounds(values()).of("a", "T", 0) == Bound(LATEST)
    assert subscription(values()).chosen(["B", "A"]) == {"A", "B"}


def test_offsets_of_queues_and_of_the_others():
    starts = starting_bounds(values(STARTINGOFFSETS=TWO_QUEUES))
    assert [starts.of("a", "T", queue) for queue in range(3)] == [Bound(7), Bound(EARLIEST), Bound(EARLIEST)]
    assert starts.of("b", "T", 0) == Bound(EARLIEST)
    assert starting_bounds(values(startingOffsets="Latest")).of("a", "T", 0) == Bound(LATEST)
    ends = ending_bounds(values(endingOffsets='{"a": {"T": {"0": 7, "1": -1}}}'))
    assert [ends.of("a", "T", queue) for queue in range(3)] == [Bound(7), Bound(LATEST), Bound(LATEST)]


def test_times_of_all_and_of_topics():
    starts = starting_bounds(values(startingTimestamp="5"))
    assert starts.of("a", "T", 0) == Bound(EARLIEST, 5)
    ends = ending_bounds(values(endingTimestamp='{"T": 9}'))
    assert (ends.of("a", "T", 0), ends.of("a", "U", 0)) == (Bound(LATEST, 9), Bound(LATEST))


def test_topics_by_name_and_by_pattern():
    known = ["Orders", "OrdersEU", "Refunds"]
    assert subscription(values(subscribe=" Orders, Gone,")).chosen(known) == {"Orders"}
    assert subscription(values(subscribePattern="Orders.*")) == Subscription(pattern="Orders.*")
    assert subscription(values(subscribePattern="Orders.+")).chosen(known) == {"OrdersEU"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "A", "subscribePattern": "B"}, "both given; give one"),
        ({"subscribe": " ,"}, "subscribe names no topic; give topics"),
        ({"subscribePattern": "("}, r"'\(', which is no regular expression: missing \)"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp are both"),
        ({"startingOffsets": "first"}, "'first'; give earliest or latest"),
        ({"startingOffsets": '{"a": {"T": 1}}'}, "Expected `object`, got `int`"),
        ({"startingOffsets": '{"a": {"T": {"0": -3}}}'}, "-3 for queue 0 of T at a; give an offset from 0, -2 for"),
        ({"endingOffsets": "earliest"}, "'earliest'; give latest"),
        ({"endingOffsets": TWO_QUEUES}, "-2 for queue 1 of T at a; give an offset from 0, or -1 for latest"),
        ({"endingTimestamp": "noon"}, "'noon'.*ms since 1970"),
        ({"endingTimestamp": '{"T": "x"}'}, "Expected `int`, got `str`"),
    ],
)
def test_contradictory_and_invalid_options(options: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        parse(values(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": '{"a": {"T": {"0": 7}}}', "endingOffsets": '{"a": {"T": {"0": 6}}}'},
            "startingOffsets has 7 for queue 0 of T at a, after 6 in endingOffsets",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "9"}, "startingTimestamp is 9, not before endingTimestamp, 9"),
        (
            {"startingTimestamp": '{"T": 9}', "endingTimestamp": "8"},
            "startingTimestamp of topic T is 9, not before endingTimestamp, 8",
        ),
    ],
)
def test_a_start_after_the_end_is_an_error(options: dict[str, str], message: str):
    given = values(**options)
    with pytest.raises(ConfigError, match=message):
        check_order(starting_bounds(given), ending_bounds(given))
    check_order(starting_bounds(given), ending_bounds(values()))
