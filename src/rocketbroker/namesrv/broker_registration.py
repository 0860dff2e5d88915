"""Registration of a broker (REGISTER_BROKER) in the terms of the route tables.

Built on the thread that decoded the body, so that the event loop only swaps tables.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from sys import intern

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE, TopicConfig, TopicQueueMappingInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.errors import shown
from rocketbroker.namesrv.names import is_registered_topic

log = logging.getLogger(__name__)

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Header of a registration.

    ``enable_acting_master`` is ``None`` for brokers without the field. ``heartbeat_timeout_ms`` is ``None`` for
    the default of 120 s.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    heartbeat_timeout_ms: int | None
    enable_acting_master: bool | None


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration of all topics of a broker, or of some.

    ``topics_sent`` and ``static_topics_sent`` also count topics without a route: those with an invalid name, and static
    topics that a partial registration names but no table has. ``digest`` is one of the body, empty for a short one.
    """

    broker: BrokerIdentity
    connection: Connection
    data_version: DataVersion
    queues: dict[str, QueueData]
    mappings: dict[str, TopicQueueMappingInfo]
    filter_servers: list[str]
    topics_sent: int
    static_topics_sent: int
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """Addresses of the master for a slave; both ``None`` for a master, or without one."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


def registration_of(broker: BrokerIdentity, body: RegisterBrokerBody, connection: Connection) -> BrokerRegistration:
    """Build a registration from a decoded body; log topics with invalid names."""
    wrapper = body.topic_config_serialize_wrapper
    writable = broker.broker_id == MASTER_ID or not broker.enable_acting_master
    configs = _allowed(broker, wrapper.topic_config_table.values())
    # Names and data are shared with those of other brokers and topics: 1,000 brokers have a million of them.
    queues = {intern(config.topic_name): _queue_data(broker.broker_name, config, writable) for config in configs}
    infos = wrapper.topic_queue_mapping_info_map
    return BrokerRegistration(
        broker,
        connection,
        wrapper.data_version,
        queues,
        {topic: infos[topic] for topic in infos.keys() & queues.keys()},
        body.filter_server_list,
        len(wrapper.topic_config_table),
        len(infos),
    )


def _allowed(broker: BrokerIdentity, topics: Iterable[TopicConfig]) -> list[TopicConfig]:
    good: list[TopicConfig] = []
    bad: list[str] = []
    for config in topics:
        if is_registered_topic(config.topic_name, broker.broker_name, broker.cluster_name):
            good.append(config)
        else:
            bad.append(config.topic_name)
    if bad:
        text = (
            "broker %s at %s registers %d topics with invalid names (^[%%|a-zA-Z0-9_-]+$) or too long ones; no route "
            "for %s"
        )
        named = ", ".join(f"'{shown(name)}'" for name in bad[:_MOST_NAMED])
        log.warning(text, shown(broker.broker_name), shown(broker.broker_addr), len(bad), named)
    return good


def _queue_data(broker_name: str, config: TopicConfig, writable: bool) -> QueueData:
    perm = config.perm if writable else config.perm & ~PERM_WRITE
    return _shared(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


_shared = lru_cache(maxsize=65_536)(QueueData)
