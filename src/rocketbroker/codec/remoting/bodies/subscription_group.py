"""Subscription groups as a broker keeps them (org.apache.rocketmq.remoting.protocol.subscription)."""

from enum import StrEnum

import msgspec

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.java_types import Int, Long


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

    next: list[Long] = msgspec.field(default_factory=list)


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
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionGroupList(RemotingSerializable):
    """Request of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig]


class SubscriptionGroupWrapper(RemotingSerializable):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) and subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class GroupForbidden(RemotingSerializable):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    topic: str = ""
    group: str = ""
    readable: bool = True
