"""Limits of heartbeats, and of what a client registers in the broker."""

from rocketbroker.broker.client.consumer_group_info import SubscriptionLimit, SubscriptionSize, is_tag_type, size_of
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.client import HeartbeatData
from rocketbroker.codec.remoting.handler import Buffer, Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

# Compiling a filter takes about 5 µs for each character, plus 60 µs.
_CHARACTERS_TO_BEGIN = 12
# RocketMQ's names of languages have up to 7 characters.
LONGEST_LANGUAGE = 64


class HeartbeatLimit:
    """Rejects a heartbeat as a whole before any of it is registered.

    The limits apply to the client with all its groups, including those that it joined by earlier heartbeats.

    Args:
        config: the limits.
        consumers: groups in which clients consume.
        producers: groups in which clients produce.
        subscription_groups: the groups that exist.

    Attributes:
        subscription: check of a single subscription.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        producers: ProducerManager,
        subscription_groups: SubscriptionGroupManager,
    ) -> None:
        self.subscription = SubscriptionLimit(config)
        self._config = config
        self._consumers = consumers
        self._producers = producers
        self._subscription_groups = subscription_groups

    def check_body(self, body: Buffer) -> None:
        """Check the length, before the body is read.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if it is too long.
        """
        _check("maxHeartbeatSize", len(body), "bytes", self._config.max_heartbeat_size)

    def check(self, connection: Connection, heartbeat: HeartbeatData, language: str) -> None:
        """Check the client's language, and the total that the client would have registered in the broker.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if it is too much.
        """
        config = self._config
        if len(language) > LONGEST_LANGUAGE:
            remark = (
                f"language: {len(language):,} characters exceed the limit of {LONGEST_LANGUAGE}; send the name of the "
                "client's language, such as JAVA or OTHER"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        _check("maxClientIdLength", len(heartbeat.client_id), "characters of a clientID", config.max_client_id_length)
        consumed = {data.group_name for data in heartbeat.consumer_data_set}
        produced = {data.group_name for data in heartbeat.producer_data_set}
        others = self._consumers.groups_of(connection) - consumed
        other_producers = self._producers.groups_of(connection) - produced
        # Lists are counted, not distinct names: a repeated name takes as long as another.
        named = len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set)
        _check("maxGroupsPerClient", named + len(others) + len(other_producers), "groups", config.max_groups_per_client)
        sizes = [size_of(data.subscription_data_set) for data in heartbeat.consumer_data_set]
        sizes += [self._size(group, connection) for group in others]
        count, characters = sum(size.topics for size in sizes), sum(size.characters for size in sizes)
        _check("maxSubscriptionsPerClient", count, "subscriptions", config.max_subscriptions_per_client)
        _check("maxHeartbeatSize", characters, "characters of subscriptions", config.max_heartbeat_size)
        if config.enable_property_filter:
            _check(
                "maxFilterLengthPerClient", _filter_length(heartbeat), "characters", config.max_filter_length_per_client
            )

    def no_room(self, connection: Connection, heartbeat: HeartbeatData) -> BrokerResponseError | None:
        """Return the error if the new groups of a heartbeat cannot be created, ``None`` if there is room for all."""
        consumed = {data.group_name for data in heartbeat.consumer_data_set}
        try:
            self._subscription_groups.check_room(
                sum(map(self._subscription_groups.creates, consumed)), connection.share
            )
        except BrokerResponseError as refusal:
            return refusal
        return None

    def _size(self, group: str, connection: Connection) -> SubscriptionSize:
        info = self._consumers.group_info(group)
        return SubscriptionSize(0, 0) if info is None else info.client_subscriptions.size(connection)


def _filter_length(heartbeat: HeartbeatData) -> int:
    """Count the characters of all filters, plus a fixed cost for each."""
    return sum(
        len(each.sub_string) + _CHARACTERS_TO_BEGIN
        for data in heartbeat.consumer_data_set
        for each in data.subscription_data_set
        if not is_tag_type(each.expression_type)
    )


def _check(name: str, found: int, what: str, limit: int) -> None:
    if found > limit:
        remark = f"{name}: {found:,} {what} exceed the limit of {limit:,}; use several clients or raise {name}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
