"""The options of the Spark format ``rocketmq`` for writing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rocketbroker.analytics.spark.cluster_access import ACCESS_OPTIONS, ClusterAccess, cluster_access
from rocketbroker.analytics.spark.option_values import OptionValues
from rocketbroker.analytics.spark.send_lanes import RETRY_TIMES
from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.message import check_group, check_topic
from rocketbroker.client.core.name_server_client import is_address_server, split_addresses
from rocketbroker.common.errors import ConfigError

#: Meaning of each option; names may be written in any case.
SINK_OPTIONS: Final = {
    "namesrvAddr": "name servers, host:port joined by semicolons, or the URL of an address server (required)",
    "topic": "topic of all rows, instead of the column topic",
    "producerGroup": "producer group (spark_sink)",
    "sendTimeoutMs": "time limit of a send in ms (3000)",
    "retryTimes": f"further tries of a send, after 0.1 s and then twice as long each, up to 10 s ({RETRY_TIMES})",
    "maxMessagesPerSecondPerTask": "most messages that each task sends per second (no limit)",
    "maxInFlightBytes": "most bytes of bodies that each task has sent without an acknowledgement, such as 16m (16 MiB)",
    **ACCESS_OPTIONS,
}
# Spark passes these options of a streaming query to its sink.
_OF_SPARK: Final = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write; see ``SINK_OPTIONS``."""

    access: ClusterAccess
    topic: str | None
    producer_group: str
    send_timeout_s: float
    retry_times: int
    rate: int  # messages per second and task, 0 for no limit
    max_in_flight_bytes: int


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse ``options``; raise :class:`ConfigError` for an unknown, invalid or missing one."""
    ours = {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}
    given = OptionValues("rocketmq", SINK_OPTIONS, ours)
    access, topic, group = cluster_access(given), given.text("topic"), given.text("producerGroup")
    if not access.namesrv_addr:
        raise ConfigError(f'format("rocketmq") needs the option namesrvAddr: {SINK_OPTIONS["namesrvAddr"]}')
    if not is_address_server(access.namesrv_addr):
        split_addresses(access.namesrv_addr)
    if "topic" in given:
        _check("topic", check_topic, topic)
    if "producerGroup" in given:
        _check("producerGroup", check_group, group)
    return SinkOptions(
        access,
        topic or None,
        group or "spark_sink",
        given.number("sendTimeoutMs", 3000) / 1000,
        given.number("retryTimes", RETRY_TIMES, least=0),
        given.number("maxMessagesPerSecondPerTask", 0),
        given.bytes("maxInFlightBytes", 16 << 20),
    )


def _check(name: str, check: Callable[[str], None], value: str) -> None:
    try:
        check(value)
    except InvalidMessageError as error:
        raise ConfigError(f"{name} is {value!r}: {error}") from error
