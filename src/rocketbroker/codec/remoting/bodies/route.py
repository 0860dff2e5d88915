"""Routes and clusters (TopicRouteData, ClusterInfo, BrokerMemberGroup).

Broker ids are the integer keys of ``brokerAddrs``: without quotes (``{0:"ip:port"}``), except in routes for clients
that request quotes or are of V4_9_4 or later.
"""

import json
import re
from typing import Any

import msgspec

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long

# MQVersion.Version.V4_9_4.ordinal()
V4_9_4 = 401
MASTER_ID = 0
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class QueueData(RemotingSerializable, gc=False):
    """Queues of a topic on one broker; ``perm`` is a PermName."""

    broker_name: str = ""
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


class BrokerData(RemotingSerializable):
    """Addresses of one broker name by broker id, 0 the master."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = msgspec.field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(RemotingSerializable):
    """Answer to GET_ROUTEINFO_BY_TOPIC (105); request of REGISTER_TOPIC_IN_NAMESRV (217)."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, dict[str, Any]] | None = None

    def encode_standard(self) -> bytes:
        """Encode as standard JSON in ASCII, with map keys quoted and sorted."""
        text = fastjson.dumps(_standard(self)).decode()
        return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text).encode()


def _standard(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: _standard(getattr(value, attribute)) for name, attribute in sorted(names)}
    if isinstance(value, dict):
        return {str(key): _standard(item) for key, item in sorted(value.items())}
    return [_standard(item) for item in value] if isinstance(value, list) else value


def takes_standard_json(version: int, accept_standard_json_only: bool | None) -> bool:
    """Return true for a client of that version (an MQVersion ordinal) that reads quoted broker ids."""
    return version >= V4_9_4 or bool(accept_standard_json_only)


class ClusterInfo(RemotingSerializable):
    """Answer to GET_BROKER_CLUSTER_INFO (106): brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class BrokerMemberGroup(RemotingSerializable):
    """Brokers of one broker name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = msgspec.field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(RemotingSerializable):
    """Answer to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None
