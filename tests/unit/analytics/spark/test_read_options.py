"""Options that both formats parse alike."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rocketbroker.analytics.spark import pull_options, read_options
from rocketbroker.analytics.spark.read_options import TriggerDelay, TriggerLimits
from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore
from rocketbroker.common.errors import ConfigError

NEEDED = {"namesrvAddr": "ns:9876", "subscribe": "T"}


def pull_batch(options: dict[str, str]) -> None:
    pull_options.batch_options(NEEDED | options)


def pull_stream(options: dict[str, str]) -> None:
    pull_options.stream_options(NEEDED | options)


def store_batch(options: dict[str, str]) -> None:
    source = RocketMQStore({"path": "x", **options})
    source.reader(source.schema())


def store_stream(options: dict[str, str]) -> None:
    source = RocketMQStore({"path": "x", **options})
    source.streamReader(source.schema())


Parse = Callable[[dict[str, str]], Any]
BATCHES = pytest.mark.parametrize("parse", [pull_batch, store_batch])
STREAMS = pytest.mark.parametrize("parse", [pull_stream, store_stream])


@BATCHES
@pytest.mark.parametrize(("name", "value"), [("maxOffsetsPerTrigger", "9"), ("MINOFFSETSPERTRIGGER", "9")])
def test_a_batch_refuses_what_only_streams_obey(parse: Parse, name: str, value: str):
    with pytest.raises(ConfigError, match=f"(?i){name} is '{re.escape(value)}': it is for readStream; limit a batch"):
        parse({name: value})


@BATCHES
@pytest.mark.parametrize("value", ["latest", '{"a": {"T": {"0": -1}}}'])
def test_a_batch_does_not_start_where_it_ends(parse: Parse, value: str):
    with pytest.raises(ConfigError, match=f"startingOffsets is '{re.escape(value)}': latest is for readStream"):
        parse({"startingOffsets": value})
    parse({"startingOffsets": "earliest", "endingOffsets": "latest"})


@BATCHES
def test_a_batch_does_not_start_after_its_end(parse: Parse):
    with pytest.raises(ConfigError, match="startingOffsets has 7 for queue 0 of T at a, after 6 in endingOffsets"):
        parse({"startingOffsets": '{"a": {"T": {"0": 7}}}', "endingOffsets": '{"a": {"T": {"0": 6}}}'})


@STREAMS
@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(parse: Parse, name: str):
    with pytest.raises(ConfigError, match=f"{name} is '5': a stream has no end"):
        parse({name: "5"})


@STREAMS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is 9, more than maxOffsetsPerTrigger, 8"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; give a number above 0"),
        ({"includeProperties": ""}, "includeProperties names no property; give names"),
        ({"includeProperties": " ,"}, "includeProperties names no property; give names"),
    ],
)
def test_wrong_options_of_both_formats_are_named(parse: Parse, options: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        parse(options)


def test_the_delay_counts_from_the_last_micro_batch(monkeypatch: pytest.MonkeyPatch):
    now = 50.0
    monkeypatch.setattr(read_options, "monotonic", lambda: now)
    delay = TriggerDelay(TriggerLimits(min_messages=9, max_delay_s=20.0))
    assert delay.least == 0
    delay.poll(1, lambda: 1)
    assert delay.least == 0
    delay.poll(1, lambda: 2)
    assert delay.least == 9
    now += 20
    assert delay.least == 0
    unlimited = TriggerDelay(TriggerLimits())
    unlimited.poll(1, lambda: 2)
    assert unlimited.least == 0


def test_the_pause_of_an_idle_stream_is_as_long_as_its_poll(monkeypatch: pytest.MonkeyPatch):
    now, slept = 50.0, list[float]()
    monkeypatch.setattr(read_options, "monotonic", lambda: now)
    monkeypatch.setattr(read_options, "sleep", slept.append)
    delay = TriggerDelay(TriggerLimits())

    def find(took: float, end: int) -> int:
        nonlocal now
        now += took
        return end

    for took, is_idle in ((0.02, True), (3.0, True), (3.0, False), (0.0, True)):
        delay.poll(1, partial(find, took, 1 if is_idle else 2))
        now += 0.01
    delay.poll(1, partial(find, 0.0, 1))
    assert slept == pytest.approx([0, 0.09, 2.99, 0, 0.09])
