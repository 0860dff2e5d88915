"""Topics and groups of a broker that users created, without those of the brokers themselves."""

from typing import Final

from rocketbroker.client.admin.topic_and_group_admin import GroupAdmin, TopicAdmin
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
)
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig

# Groups that every broker or tool has (MixAll.PREDEFINE_GROUP_SET).
PREDEFINED_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)


class TableAdmin(TopicAdmin, GroupAdmin):
    """Calls for the tables of users (DefaultMQAdminExt.getUserTopicConfig, getUserSubscriptionGroup)."""

    async def get_user_topic_config(self, address: str, *, special_topic: bool = False) -> dict[str, TopicConfig]:
        """Return the topics of a broker by name, without system topics and invalid ones.

        Args:
            address: ``host:port`` of the broker.
            special_topic: with retry and dead-letter topics.
        """
        system = set(await self.get_system_topic_list_from_broker(address))
        return {
            name: config
            for name, config in sorted((await self.get_all_topic_config(address)).items())
            if name not in system
            and not is_system_topic(name)
            and (special_topic or not name.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)))
            and 0 <= config.perm < 8
        }

    async def get_user_subscription_group(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the consumer groups of a broker by name, without those of brokers and tools."""
        groups = (await self.get_all_subscription_group(address)).subscription_group_table
        return {
            name: config
            for name, config in sorted(groups.items())
            if not is_system_group(name) and name not in PREDEFINED_GROUPS
        }
