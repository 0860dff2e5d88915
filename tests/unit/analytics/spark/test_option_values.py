import pytest

from rocketbroker.analytics.spark.option_values import OptionValues, instead_of
from rocketbroker.common.errors import ConfigError

MEANINGS = {
    "Delay": "wait (1s)",
    "Size": "bytes of a part (1m)",
    "Count": "parts (1)",
    "Strict": "false: continue (true)",
    "Places": "list",
}


def values(**options: str) -> OptionValues:
    return OptionValues("f", MEANINGS, options)


def test_values_of_each_kind():
    given = values(SIZE="2 KiB", count="3", strict="FALSE", places='["a"]')
    assert (given.bytes("Size", 1), given.number("Count", 1)) == (2048, 3)
    assert (given.flag("Strict", default=True), given.json("Places", list[str])) == (False, ["a"])
    assert (given.text("Count"), "Count" in given, "Size" in values()) == ("3", True, False)
    assert (values().bytes("Size", 7), values().flag("Strict", default=True), values().text("Count")) == (7, True, "")


def test_times_have_the_units_of_spark():
    given = [values(delay=text).seconds("Delay", 1) for text in ("500", "500ms", "2 s", "3m", "3min", "1h", "1d")]
    assert given == [0.5, 0.5, 2, 180, 180, 3600, 86_400]
    assert values().seconds("Delay", 1) == 1
    with pytest.raises(ConfigError, match="Delay is '1 week'; give a number above 0"):
        values(delay="1 week").seconds("Delay", 1)


def test_an_option_of_kafka_s_source_is_refused_with_what_to_do_instead():
    with pytest.raises(ConfigError, match=r"no option 'assign': name the topics by subscribe.*; its options are Delay"):
        values(assign="1")


def test_errors_say_what_would_be_right():
    with pytest.raises(ConfigError, match=r'format\("f"\) has no option \'Sizes\'; its options are Delay, Size, Count'):
        values(Sizes="1")
    with pytest.raises(ConfigError, match=r"Count is '1k'; give a number above 0 \(parts"):
        values(count="1k").number("Count", 1)
    with pytest.raises(ConfigError, match="Strict is 'no'; give true or false"):
        values(strict="no").flag("Strict")
    with pytest.raises(ConfigError, match=r"Places is '5'.*Expected `array`"):
        values(places="5").json("Places", list[str])
    with pytest.raises(ConfigError, match="Places is invalid") as refused:
        values(places='"s3cret"').json("Places", list[str], secret=True)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ASSIGN", "name the topics by subscribe, and queues by startingOffsets and endingOffsets"),
        ("startingOffsetsByTimestamp", "give startingTimestamp, as JSON by topic if topics differ"),
        ("kafka.group.id", "a query needs no consumer group, since its checkpoint has the offsets"),
        ("kafka.bootstrap.servers", "it configures a Kafka client"),
        ("fetchOffset.numRetries", "it configures a Kafka client"),
        ("subscribe", ""),
        ("kafkaesque", ""),
    ],
)
def test_what_to_use_instead(name: str, instead: str):
    assert instead_of(name) == instead
