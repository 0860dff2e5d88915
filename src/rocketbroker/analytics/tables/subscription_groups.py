"""The table ``subscription_groups``: ``config/subscriptionGroup.json``."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.tables.config_file import load_config_file
from rocketbroker.analytics.tables.config_table import ConfigTable
from rocketbroker.analytics.tables.table import BROKER, TEXTS, field, select_by
from rocketbroker.codec.remoting.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper


class SubscriptionGroupsTable(ConfigTable):
    """One row per consumer group of a broker."""

    name = "subscription_groups"
    comment = "a consumer group of a broker, as `config/subscriptionGroup.json` has it"
    schema = pa.schema(
        [
            BROKER,
            field("group_name", pa.string(), "name of the group"),
            field("consume_enable", pa.bool_(), "whether it may consume"),
            field("consume_from_min_enable", pa.bool_(), "whether a new group may begin at the lowest offset"),
            field("consume_broadcast_enable", pa.bool_(), "whether it may consume by broadcast"),
            field("consume_message_orderly", pa.bool_(), "whether it consumes in order"),
            field("retry_queue_nums", pa.int32(), "queues of its retry topic"),
            field("retry_max_times", pa.int32(), "so often a message is tried again before it is a dead letter"),
            field("retry_policy_type", pa.string(), "where delays between retries come from"),
            field("broker_id", pa.int64(), "broker that it consumes from"),
            field("which_broker_when_consume_slowly", pa.int64(), "broker that it is sent to when it lags"),
            field("notify_consumer_ids_changed_enable", pa.bool_(), "whether its consumers are notified of each other"),
            field("group_sys_flag", pa.int32(), "bits of the group's system flag"),
            field("consume_timeout_minute", pa.int32(), "minutes that a message may be consumed for"),
            field("attributes", TEXTS, "its attributes"),
        ]
    )
    selects = select_by()

    def rows(self, folder: StoreFolder) -> Iterator[Mapping[str, Any]]:
        """Yield the groups by name."""
        file = load_config_file(folder, "subscriptionGroup.json", SubscriptionGroupWrapper)
        for name, group in sorted(file.subscription_group_table.items()):
            yield {"group_name": name, **_row(group)}


#: Columns that are a field of the group's configuration.
_PLAIN = (
    "consume_enable",
    "consume_from_min_enable",
    "consume_broadcast_enable",
    "consume_message_orderly",
    "retry_queue_nums",
    "retry_max_times",
    "broker_id",
    "which_broker_when_consume_slowly",
    "notify_consumer_ids_changed_enable",
    "group_sys_flag",
    "consume_timeout_minute",
)


def _row(group: SubscriptionGroupConfig) -> Mapping[str, Any]:
    return {
        **{column: getattr(group, column) for column in _PLAIN},
        "retry_policy_type": group.group_retry_policy.type.value,
        "attributes": list(group.attributes.items()),
    }
