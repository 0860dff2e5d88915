"""Plain lists and tables of texts (KVTable, TopicList, GroupList)."""

import msgspec

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable


class KVTable(RemotingSerializable):
    """Texts by name: runtime information (28), a namespace of the KV configuration (219), order topics (103)."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class TopicList(RemotingSerializable):
    """Names of topics (206, 224, 304, 305, 311 to 313, 343); ``broker_addr`` where one broker gave them."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class GroupList(RemotingSerializable):
    """Names of groups (300)."""

    group_list: list[str] = msgspec.field(default_factory=list)
