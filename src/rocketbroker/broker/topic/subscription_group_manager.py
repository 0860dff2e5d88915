"""Consumer groups and ``config/subscriptionGroup.json`` (o.a.r.broker.subscription.SubscriptionGroupManager)."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rocketbroker.broker.persist.config_manager import (
    EntryTexts,
    OnPersist,
    VersionedConfigManager,
    file_text,
    struct_text,
)
from rocketbroker.broker.persist.durable_progress import TableChanges
from rocketbroker.broker.topic.topic_config_manager import Attribute, alter_attributes
from rocketbroker.codec.message.topic_validator import is_system_group, validate_group
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import (
    PRIORITY_FACTOR,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    percent_of,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

log = logging.getLogger(__name__)

#: Attributes of groups (SubscriptionGroupAttributes).
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    PRIORITY_FACTOR: Attribute(changeable=True, takes="0 to 100", accepts=lambda value: percent_of(value) is not None)
}

# Limit of groups that are remembered only for their pulls.
MOST_PASSING = 1_000

BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class SubscriptionGroupManager(VersionedConfigManager[SubscriptionGroupWrapper]):
    """Consumer groups by name. All methods are for the event loop.

    Args:
        config: whether a group is created when its first client arrives.
    """

    file_name, contents = "subscriptionGroup.json", SubscriptionGroupWrapper

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        clock: Clock,
        on_persist: OnPersist | None = None,
    ) -> None:
        super().__init__(path, clock, on_persist)
        self._config = config
        self._shares = AddressShares(clock)
        self._texts: EntryTexts[SubscriptionGroupConfig] = EntryTexts()
        # Groups that have pulled and are otherwise unknown, oldest first.
        self._passing: OrderedDict[str, SubscriptionGroupConfig] = OrderedDict()
        self.groups = {name: SubscriptionGroupConfig(group_name=name) for name in BUILT_IN_GROUPS}
        # group -> topic -> forbidden operations as bits; bit 0 is reading (GroupForbidden).
        self.forbidden_table: dict[str, dict[str, int]] = {}
        self._changes = TableChanges(self.groups)
        self._forbidden_changes = TableChanges(self.forbidden_table)

    def find_for_pull(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group, or the configuration that a new one would get, which is added to neither table nor disk.

        A pull needs no more. The latest of these groups are remembered, so that committed offsets create them.
        """
        found = self.groups.get(group) or self._passing.get(group)
        if found is None and self._may_create(group):
            found = self._passing[group] = SubscriptionGroupConfig(group_name=group)
            if len(self._passing) > MOST_PASSING:
                self._passing.popitem(last=False)
        return found

    def find(self, group: str, share: bytes | None = None) -> SubscriptionGroupConfig | None:
        """Return the group; create a new one with a legal name if ``autoCreateSubscriptionGroup`` is set.

        Args:
            group: its name.
            share: address whose share of ``maxAutoCreateGroupNums`` a new group counts for; ``None`` for a trusted
                peer.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST; there are too many groups to create one.
        """
        found = self.groups.get(group)
        if found is not None or not self._may_create(group):
            return found
        self.check_room(1, share)
        self._shares.add(share)
        created = SubscriptionGroupConfig(group_name=group)
        log.info("consumer group %s is created", group)
        self._passing.pop(group, None)
        self._put(created)
        return created

    def check_room(self, count: int, share: bytes | None = None) -> None:
        """Check that ``count`` more groups may be created automatically, for an address as in ``find``.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST.
        """
        limit = self._config.max_auto_create_group_nums
        if count and not self._shares.allows(share, limit - len(self.groups), count):
            remark = (
                f"maxAutoCreateGroupNums: {count:,} new consumer groups beside {len(self.groups):,} exceed the limit "
                f"of {limit:,}, or this address's share of it; delete unused groups, create this one by an "
                "administrator or raise maxAutoCreateGroupNums"
            )
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def contains(self, group: str) -> bool:
        """Return true if the group exists; never create it."""
        return group in self.groups

    def creates(self, group: str) -> bool:
        """Return true if ``find`` would create the group, unless the limit forbids it."""
        return group not in self.groups and self._may_create(group)

    def is_passing(self, group: str) -> bool:
        """Return true if the group has pulled recently and would be created by a commit."""
        return group in self._passing and self.creates(group)

    def _may_create(self, group: str) -> bool:
        config = self._config
        may = config.auto_create_subscription_group or (config.enable_create_sys_group and is_system_group(group))
        return may and validate_group(group).valid

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group; its attributes are changes, with ``+`` or ``-`` before each name.

        Raises:
            BrokerResponseError: An attribute is unknown or has a wrong value.
        """
        old = self.groups.get(group.group_name)
        attributes = alter_attributes(GROUP_ATTRIBUTES, None if old is None else old.attributes, group.attributes)
        self._put(msgspec.structs.replace(group, attributes=attributes))

    def delete(self, group: str) -> bool:
        """Remove a group and its forbidden bits; return true if there was one."""
        found = group in self.groups
        if found or group in self.forbidden_table:
            log.info("consumer group %s is deleted", group)
            self._changes.put(group, None)
            self._forbidden_changes.put(group, None)
            self.changed(group)
        return found

    def forbidden(self, group: str, topic: str) -> int:
        """Return the forbidden operations of the group on the topic as bits; 0 forbids nothing."""
        return max(0, self.forbidden_table.get(group, {}).get(topic, 0))

    def update_forbidden(self, group: str, topic: str, index: int, *, forbid: bool) -> None:
        """Set or clear bit ``index`` (0 to 30) of the group's forbidden operations on the topic."""
        bit = 1 << index
        bits = self.forbidden(group, topic)
        topics = self.forbidden_table.get(group, {}) | {topic: bits | bit if forbid else bits & ~bit}
        if not topics[topic]:
            del topics[topic]
        self._forbidden_changes.put(group, topics or None)
        self.changed(group)

    def follow(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        gone: Sequence[str],
        version: DataVersion,
    ) -> None:
        """Take over the groups of a slave's master; ``gone`` are those that it deleted."""
        known = groups.keys() | set(gone)
        allowed = [group for group in self.forbidden_table if group not in forbidden and group in known]
        changed = self._forbidden_changes.follow(forbidden, allowed)
        changed |= self._changes.follow(groups, gone)
        self.follow_version(version, changed=changed)

    def encoder(self) -> Callable[[], bytes]:
        """Return a function that makes the text on a thread: groups are replaced, never altered."""
        version, groups = struct_text(self.data_version, 1), dict(self.groups)
        forbidden = fastjson.dumps(self.forbidden_table, indent="\t").decode().replace("\n", "\n\t")
        return lambda: file_text(
            dataVersion=version, forbiddenTable=forbidden, subscriptionGroupTable=self._texts.object_text(groups)
        )

    def count(self, file: SubscriptionGroupWrapper) -> int:
        """Return the number of entries."""
        return len(file.subscription_group_table)

    def take(self, file: SubscriptionGroupWrapper) -> None:
        """Add the groups of a ``subscriptionGroup.json``; they replace built-in groups of the same name."""
        self.groups.update(file.subscription_group_table)
        self.forbidden_table.update(file.forbidden_table)
        self.data_version = file.data_version

    def _put(self, group: SubscriptionGroupConfig) -> None:
        self._changes.put(group.group_name, group)
        self.changed(group.group_name)

    def _tables(self) -> Iterable[TableChanges[Any]]:
        return self._changes, self._forbidden_changes
