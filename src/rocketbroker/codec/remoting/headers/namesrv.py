"""Name server: brokers (103, 104, 322, 901, 904, 905), routes (105, 205, 216, 217, 224, 327), KV (100 to 102, 219)."""

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader


class RegisterBrokerRequestHeader(CommandCustomHeader):
    """Code 103. ``body_crc32`` 0: unchecked; ``compressed``: the body is a zlib stream (see RegisterBrokerBody)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(CommandCustomHeader):
    """Answer to 103: the master's addresses for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandCustomHeader):
    """Code 104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(CommandCustomHeader):
    """Code 322; the body is the broker's DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(CommandCustomHeader):
    """Answer to 322; the body is the name server's DataVersion."""

    changed: bool


class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """Code 904. ``heartbeat_timeout_mills`` in ms."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class NotifyMinBrokerIdChangeRequestHeader(CommandCustomHeader):
    """Code 905, name server to broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class GetBrokerMemberGroupRequestHeader(CommandCustomHeader):
    """Code 901."""

    cluster_name: str
    broker_name: str


class GetRouteInfoRequestHeader(CommandCustomHeader, gc=False):
    """Code 105. ``accept_standard_json_only``: quote the broker ids."""

    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicsByClusterRequestHeader(CommandCustomHeader):
    """Code 224."""

    cluster: str


class DeleteTopicFromNamesrvRequestHeader(CommandCustomHeader):
    """Code 216."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(CommandCustomHeader):
    """Code 217; the body is a TopicRouteData with the queues."""

    topic: str


class WipeWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """Code 205."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 205."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """Code 327."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 327."""

    add_topic_count: Int


class PutKVConfigRequestHeader(CommandCustomHeader):
    """Code 100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandCustomHeader):
    """Code 101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandCustomHeader):
    """Answer to 101."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CommandCustomHeader):
    """Code 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandCustomHeader):
    """Code 219; the answer's body is a KVTable."""

    namespace: str
