"""The options with which the Spark format ``rocketmq`` reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketbroker.analytics.spark.offset_options import (
    LATEST,
    OFFSET_OPTIONS,
    Bounds,
    Subscription,
    ending_bounds,
    starting_bounds,
    subscription,
)
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.codec.message.topic_validator import validate_group
from rocketbroker.common.errors import ConfigError

FORMAT: Final = "rocketmq"
_GROUP: Final = "spark_source"
_TRIGGER_DELAY: Final = 15 * 60.0

_STREAM_OPTIONS: Final = {
    "maxOffsetsPerTrigger": "most messages per micro-batch, shared by the queues as they have unread ones (no limit)",
    "minOffsetsPerTrigger": "messages to wait for before a micro-batch begins (1)",
    "maxTriggerDelay": "longest wait for minOffsetsPerTrigger, such as 30s (15m)",
}
#: Meaning of each option; names may be written in any case.
PULL_OPTIONS: Final = {
    "namesrvAddr": "name servers, host:port joined by semicolons, or the URL of an address server",
    **OFFSET_OPTIONS,
    **_STREAM_OPTIONS,
    "minPartitions": "tasks at least, by dividing queues (one for each queue with messages)",
    "failOnDataLoss": "false: if messages were removed unread, log it and continue after them (true)",
    "includeProperties": "properties to keep in the column properties, separated by commas (all)",
    "consumerGroup": f"consumer group that pulls name; it commits no offsets ({_GROUP})",
}


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of a query; see ``PULL_OPTIONS``."""

    namesrv_addr: str
    subscription: Subscription
    starts: Bounds
    ends: Bounds
    most_offsets: int | None
    least_offsets: int | None
    trigger_delay_s: float
    min_partitions: int
    fail_on_data_loss: bool
    properties: tuple[str, ...] | None
    consumer_group: str


def batch_options(options: Mapping[str, str]) -> PullOptions:
    """Parse the options of a batch.

    Raises:
        ConfigError: an option is missing, unknown, invalid, or for streams only.
    """
    given = _values(options)
    for name in _STREAM_OPTIONS:
        if name in given:
            raise ConfigError(f"{name} is for readStream; limit a batch by endingOffsets or endingTimestamp")
    found = _parsed(given)
    if found.starts.default.offset == LATEST:
        raise ConfigError("startingOffsets is 'latest', so that a batch would be empty; give earliest or offsets")
    return found


def stream_options(options: Mapping[str, str]) -> PullOptions:
    """Parse the options of a stream; raise :class:`ConfigError` as for a batch."""
    given = _values(options)
    for name in ("endingOffsets", "endingTimestamp"):
        if name in given:
            raise ConfigError(f"{name} is for spark.read: a stream has no end; remove it")
    return _parsed(given)


def _values(options: Mapping[str, str]) -> OptionValues:
    return OptionValues(FORMAT, PULL_OPTIONS, options)


def _parsed(given: OptionValues) -> PullOptions:
    for choice in (["namesrvAddr"], ["subscribe", "subscribePattern"]):
        if not any(given.text(name).strip() for name in choice):
            what = " or ".join(f"{name} ({PULL_OPTIONS[name]})" for name in choice)
            raise ConfigError(f'format("{FORMAT}") needs the option {what}')
    most, least = given.number("maxOffsetsPerTrigger", 0) or None, given.number("minOffsetsPerTrigger", 0) or None
    if most and least and least > most:
        raise ConfigError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most}); give a smaller one")
    group = given.text("consumerGroup", _GROUP)
    valid = validate_group(group)
    if not valid.valid:
        raise ConfigError(f"consumerGroup is {group!r}: {valid.remark}")
    names = [name.strip() for name in given.text("includeProperties").split(",")]
    return PullOptions(
        given.text("namesrvAddr").strip(),
        subscription(given),
        starting_bounds(given),
        ending_bounds(given),
        most,
        least,
        given.seconds("maxTriggerDelay", _TRIGGER_DELAY),
        given.number("minPartitions", 1),
        given.flag("failOnDataLoss", default=True),
        tuple(filter(None, names)) if "includeProperties" in given else None,
        group,
    )
