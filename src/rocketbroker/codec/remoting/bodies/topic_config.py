"""Topics and groups as a broker keeps them (TopicConfig, SubscriptionGroupConfig, ConsumerFilterData, PermName)."""

import re
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from rocketbroker.codec.java_types import Int, Long
from rocketbroker.codec.message.topic_message_type import MESSAGE_TYPE, PRIORITY
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, RemotingSerializable
from rocketbroker.common.errors import CodecError

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
# The bit for reading in a group's forbidden operations.
INDEX_PERM_READ: Final = 2
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

# A topic as a broker keeps it (org.apache.rocketmq.common.TopicConfig).
#
# As text, in the compressed registration, fields are joined by one blank:
#
#     topicName readQueueNums writeQueueNums perm topicFilterType attributes-as-JSON

_TEXT_FIELDS = 5
QUEUE_TYPE = "queue.type"
BATCH_CQ = "BatchCQ"
#: Attribute of a group: percent of its pops that read the queues of a PRIORITY topic in order (``priority.factor``).
PRIORITY_FACTOR: Final = "priority.factor"
_ALL_BY_PRIORITY: Final = 100
# At most the digits of a Java long.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class TopicFilterType(StrEnum):
    """One tag or several in a message."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(RemotingSerializable):
    """``perm`` is a PermName (4 read, 2 write, 1 inherit); ``attributes`` are kept without their ``+``."""

    topic_name: str = ""
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def is_batch_cq(self) -> bool:
        """True if its queues hold whole batches (QueueTypeUtils.isBatchCq)."""
        return self.attributes.get(QUEUE_TYPE) == BATCH_CQ

    @property
    def has_priorities(self) -> bool:
        """True if its messages have priorities, each of which is a queue (TopicMessageType.PRIORITY)."""
        return self.attributes.get(MESSAGE_TYPE) == PRIORITY

    def encode_text(self) -> str:
        """Return the text form; it has no place for ``order`` and ``topicSysFlag``."""
        numbers = f"{self.read_queue_nums} {self.write_queue_nums} {self.perm}"
        attributes = fastjson.dumps(self.attributes).decode()
        return f"{self.topic_name} {numbers} {self.topic_filter_type} {attributes}"

    @classmethod
    def decode_text(cls, text: str) -> Self:
        """Decode the text form.

        Raises:
            CodecError: A field is missing or wrong.
        """
        name, *fields = text.split(" ", _TEXT_FIELDS)
        try:
            read, write, perm = (int(field) for field in fields[:3])
            filter_type = TopicFilterType(fields[3])
        except (ValueError, IndexError):
            wanted = "<name> <readQueueNums> <writeQueueNums> <perm> <topicFilterType> [<attributes>]"
            raise CodecError(f"topic {text[:160]!r} is not {wanted}") from None
        return cls(name, read, write, perm, filter_type, attributes=_attributes(fields[4] if fields[4:] else ""))


def _attributes(text: str) -> dict[str, str]:
    # 4.x ends after the filter type, with or without a blank.
    value = fastjson.loads(text.encode()) if text else {}
    if not isinstance(value, dict):
        return {}
    if any(isinstance(item, list | dict) for item in value.values()):
        raise CodecError(f"the attributes {text[:160]!r} of a topic are not a table of texts")
    return {str(key): str(item) for key, item in value.items()}


class CreateTopicListRequestBody(RemotingSerializable):
    """Request of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig]


class TopicConfigSerializeWrapper(RemotingSerializable):
    """All topics of a broker by name."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


#: Begins the name that clients of a static topic have for the broker of its logical queues, and no broker has
#: (MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX).
LOGICAL_QUEUE_MOCK_BROKER_PREFIX: Final = "__syslo__"


class TopicQueueMappingInfo(RemotingSerializable):
    """Queues of a static topic on a broker (TopicQueueMappingInfo): physical ids by logical ones."""

    bname: str | None = None
    curr_id_map: dict[Int, Int] = {}
    dirty: bool = False
    epoch: Long = 0
    scope: str | None = None
    topic: str | None = None
    total_queues: Int = 0

    def as_fields(self) -> dict[str, Any]:
        """Return the fields by RocketMQ's names, in alphabetical order."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """Topics and static topics, in REGISTER_BROKER (103) and the answer to GET_ALL_TOPIC_CONFIG (21)."""

    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, dict[str, Any]] = {}


class GroupRetryPolicyType(StrEnum):
    """Kind of policy for the delays between retries."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(RemotingSerializable):
    """Delays that grow; ``initial`` and ``max`` in ms."""

    initial: Long = 5_000
    max: Long = 7_200_000
    multiplier: Long = 2


class CustomizedRetryPolicy(RemotingSerializable):
    """Delays by list, in ms."""

    next: list[Long] = []


class GroupRetryPolicy(RemotingSerializable):
    """Retry policy of a group; without one of the given type, the broker's delay levels apply."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(RemotingSerializable):
    """A subscription that is fixed for a group."""

    topic: str = ""
    expression_type: str = "TAG"
    expression: str = "*"
    version: Long = 0


class SubscriptionGroupConfig(RemotingSerializable):
    """One group; ``consume_timeout_minute`` in minutes, broker ids as in a route."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=GroupRetryPolicy)
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}

    @property
    def priority_factor(self) -> int:
        """Percent of its pops that read the queues of a topic by priority."""
        percent = percent_of(self.attributes.get(PRIORITY_FACTOR, ""))
        return _ALL_BY_PRIORITY if percent is None else percent


def percent_of(text: str) -> int | None:
    """Return the number of an attribute from 0 to 100, ``None`` if it has another value."""
    number = int(text) if _NUMBER.fullmatch(text) else -1
    return number if 0 <= number <= _ALL_BY_PRIORITY else None


class SubscriptionGroupList(RemotingSerializable):
    """Request of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig]


class SubscriptionGroupWrapper(RemotingSerializable):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) and subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class GroupForbidden(RemotingSerializable):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    topic: str = ""
    group: str = ""
    readable: bool = True


class BloomFilterData(RemotingSerializable):
    """Bits of a group in the bit map of each message of a topic; ``bit_num`` is the size of the map."""

    bit_num: Int = 0
    bit_pos: list[int] | None = None


class ConsumerFilterData(RemotingSerializable):
    """Filter of a group for a topic; times in ms, ``dead`` and ``dead_time`` after its last client has left."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str = "SQL92"
    client_version: Long = 0
    born_time: Long = 0
    dead_time: Long = 0
    dead: bool = False
    bloom_filter_data: BloomFilterData | None = None


class FilterDataMapByTopic(RemotingSerializable):
    """Filters of a topic by group."""

    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = {}


class ConsumerFilterWrapper(RemotingSerializable):
    """All filters by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
