"""Routes and clusters (TopicRouteData, ClusterInfo, BrokerMemberGroup).

Broker ids are the integer keys of ``brokerAddrs``: without quotes (``{0:"ip:port"}``), except in routes for clients
that request quotes or are of V4_9_4 or later.

A route may have 1,000 brokers, and a name server encodes it on its event loop. So queues are encoded by msgspec, and
brokers by a template: 1.4 ms in all, where ``fastjson`` takes 12.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ
from rocketbroker.common.errors import CodecError

# MQVersion.Version.V4_9_4.ordinal()
V4_9_4 = 401
MASTER_ID = 0
#: Most queues of a topic on all brokers; a larger route is not one.
MOST_QUEUES = 65_536
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_text = msgspec.json.encode
_sorted_by_name = msgspec.json.Encoder(order="sorted").encode


class QueueData(RemotingSerializable, frozen=True, gc=False):  # type: ignore[misc] # msgspec allows it
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
    broker_addrs: dict[Long, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(RemotingSerializable):
    """Answer to GET_ROUTEINFO_BY_TOPIC (105); request of REGISTER_TOPIC_IN_NAMESRV (217)."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, dict[str, Any]] | None = None

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of the topic that can be read, by broker and number.

        Raises:
            CodecError: There are too many.
        """
        readable = [data for data in self.queue_datas if data.perm & PERM_READ]
        if sum(max(data.read_queue_nums, 0) for data in readable) > MOST_QUEUES:
            raise CodecError(f"the route of topic {topic} has over {MOST_QUEUES:,} queues to read")
        readable.sort(key=lambda data: data.broker_name)
        return [MessageQueue(topic, data.broker_name, at) for data in readable for at in range(data.read_queue_nums)]

    def encode(self) -> bytes:
        """Return the body as fastjson writes it: fields sorted by name, integer and object keys without quotes."""
        return self._encoded(_broker, fastjson.dumps)

    def encode_standard(self) -> bytes:
        """Encode as standard JSON in ASCII, with map keys quoted and sorted."""
        body = self._encoded(_standard_broker, _standard)
        if body.isascii():
            return body
        return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], body.decode()).encode()

    def _encoded(self, encode_broker: Callable[[BrokerData], bytes], encode: Callable[[Any], bytes]) -> bytes:
        order, mappings = self.order_topic_conf, self.topic_queue_mapping_by_broker
        return b'{"brokerDatas":[%b],"filterServerTable":%b%b,"queueDatas":%b%b}' % (
            b",".join(map(encode_broker, self.broker_datas)),
            encode(self.filter_server_table),
            b"" if order is None else b',"orderTopicConf":' + _text(order),
            _sorted_by_name(self.queue_datas),
            b"" if mappings is None else b',"topicQueueMappingByBroker":' + encode(mappings),
        )


def _broker(data: BrokerData) -> bytes:
    return _with_addresses(data, [b"%d:%b" % (number, _text(addr)) for number, addr in data.broker_addrs.items()])


def _standard_broker(data: BrokerData) -> bytes:
    addresses = sorted(data.broker_addrs.items())
    return _with_addresses(data, [b'"%d":%b' % (number, _text(addr)) for number, addr in addresses])


def _standard(value: Any) -> bytes:
    return fastjson.dumps(_quoted(value))


def _quoted(value: Any) -> Any:
    """Return the value with all map keys as text, sorted."""
    if isinstance(value, dict):
        return {str(key): _quoted(item) for key, item in sorted(value.items())}
    return [_quoted(item) for item in value] if isinstance(value, list) else value


def _with_addresses(data: BrokerData, addresses: list[bytes]) -> bytes:
    return b'{"brokerAddrs":{%b},"brokerName":%b,"cluster":%b,"enableActingMaster":%b%b}' % (
        b",".join(addresses),
        _text(data.broker_name),
        _text(data.cluster),
        _text(data.enable_acting_master),
        b"" if data.zone_name is None else b',"zoneName":' + _text(data.zone_name),
    )


def takes_standard_json(version: int, accept_standard_json_only: bool | None) -> bool:
    """Return true for a client of that version (an MQVersion ordinal) that reads quoted broker ids."""
    return version >= V4_9_4 or bool(accept_standard_json_only)


class ClusterInfo(RemotingSerializable):
    """Answer to GET_BROKER_CLUSTER_INFO (106): brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}

    def encode(self) -> bytes:
        """Return the body as fastjson writes it."""
        brokers = [b"%b:%b" % (_text(name), _broker(data)) for name, data in self.broker_addr_table.items()]
        clusters = fastjson.dumps(self.cluster_addr_table)
        return b'{"brokerAddrTable":{%b},"clusterAddrTable":%b}' % (b",".join(brokers), clusters)


class BrokerMemberGroup(RemotingSerializable):
    """Brokers of one broker name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = {}


class GetBrokerMemberGroupResponseBody(RemotingSerializable):
    """Answer to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None
