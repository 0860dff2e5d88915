"""The options with which the Spark format ``rocketmq`` reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketbroker.analytics.spark.cluster_access import ACCESS_OPTIONS, ClusterAccess, cluster_access
from rocketbroker.analytics.spark.offset_options import (
    OFFSET_OPTIONS,
    Bounds,
    Subscription,
    check_order,
    ending_bounds,
    starting_bounds,
    subscription,
)
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.spark.read_options import (
    DELAY_OPTION,
    PROPERTIES_OPTION,
    TriggerLimits,
    check_batch_options,
    check_stream_options,
    kept_properties,
    trigger_limits,
)
from rocketbroker.codec.message.topic_validator import validate_group
from rocketbroker.common.errors import ConfigError

FORMAT: Final = "rocketmq"
_GROUP: Final = "spark_source"

#: Meaning of each option; names may be written in any case.
PULL_OPTIONS: Final = {
    "namesrvAddr": "name servers, host:port joined by semicolons, or the URL of an address server",
    **OFFSET_OPTIONS,
    "maxOffsetsPerTrigger": "most messages per micro-batch, shared by the queues as they have unread ones (no limit)",
    "minOffsetsPerTrigger": "messages to wait for before a micro-batch begins (1)",
    **DELAY_OPTION,
    "minPartitions": "tasks at least, by dividing queues (one for each queue with messages)",
    "failOnDataLoss": "false: if messages were removed unread, log it and continue after them (true)",
    **PROPERTIES_OPTION,
    "consumerGroup": f"consumer group that pulls name; it commits no offsets ({_GROUP})",
    **ACCESS_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of a query; see ``PULL_OPTIONS``."""

    access: ClusterAccess
    subscription: Subscription
    starts: Bounds
    ends: Bounds
    limits: TriggerLimits
    min_partitions: int
    fail_on_data_loss: bool
    properties: frozenset[str] | None
    consumer_group: str


def batch_options(options: Mapping[str, str]) -> PullOptions:
    """Parse the options of a batch.

    Raises:
        ConfigError: an option is missing, unknown, invalid, or for streams only.
    """
    given = _values(options)
    check_batch_options(given)
    return _parsed(given)


def stream_options(options: Mapping[str, str]) -> PullOptions:
    """Parse the options of a stream; raise :class:`ConfigError` as for a batch."""
    given = _values(options)
    check_stream_options(given)
    return _parsed(given)


def _values(options: Mapping[str, str]) -> OptionValues:
    return OptionValues(FORMAT, PULL_OPTIONS, options)


def _parsed(given: OptionValues) -> PullOptions:
    for choice in (["namesrvAddr"], ["subscribe", "subscribePattern"]):
        if not any(given.text(name).strip() for name in choice):
            what = " or ".join(f"{name} ({PULL_OPTIONS[name]})" for name in choice)
            raise ConfigError(f'format("{FORMAT}") needs the option {what}')
    group = given.text("consumerGroup", _GROUP)
    valid = validate_group(group)
    if not valid.valid:
        raise ConfigError(f"consumerGroup is {group!r}: {valid.remark}")
    starts, ends = starting_bounds(given), ending_bounds(given)
    check_order(starts, ends)
    return PullOptions(
        cluster_access(given),
        subscription(given),
        starts,
        ends,
        trigger_limits(given),
        given.number("minPartitions", 1),
        given.flag("failOnDataLoss", default=True),
        kept_properties(given),
        group,
    )
