"""Connected clients (ConsumerConnection, ProducerConnection, ProducerTableInfo and the consumer list of a group)."""

import msgspec

from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


class Connection(RemotingSerializable):
    """One client; ``client_addr`` as ``ip:port``."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: Int = 0


class ConsumerConnection(RemotingSerializable):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203); subscriptions by topic."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(RemotingSerializable):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class ProducerInfo(RemotingSerializable):
    """One producer; ``last_update_timestamp`` in ms."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "JAVA"
    version: Int = 0
    last_update_timestamp: Long = 0


class ProducerTableInfo(RemotingSerializable):
    """Answer to GET_ALL_PRODUCER_INFO (328), by group."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


class GetConsumerListByGroupResponseBody(RemotingSerializable):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class QuerySubscriptionResponseBody(RemotingSerializable):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None
