"""Administration of consumer and producer groups."""

from collections.abc import Iterable

from rocketbroker.client.admin_connection import AdminConnection, address_in, addresses_of
from rocketbroker.client.errors import BrokerNotFoundError
from rocketbroker.client.message import check_group
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ProducerConnection,
    QuerySubscriptionResponseBody,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import QueryConsumeTimeSpanBody, QueryCorrectionOffsetBody, QueueTimeSpan
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import QueryCorrectionOffsetHeader, ResumeCheckHalfMessageRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode


class GroupAdmin(AdminConnection):
    """Calls about consumer and producer groups."""

    # -- subscription groups

    async def create_and_update_subscription_group_config(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Make a consumer group on a broker, or change it."""
        check_group(config.group_name)
        await self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def create_and_update_subscription_group_config_list(
        self, address: str, configs: Iterable[SubscriptionGroupConfig]
    ) -> None:
        """Make consumer groups on a broker, or change them."""
        configs = list(configs)
        for config in configs:
            check_group(config.group_name)
        body = SubscriptionGroupList(configs).encode()
        await self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)

    async def examine_subscription_group_config(self, address: str, group: str) -> SubscriptionGroupConfig:
        """Return a consumer group as a broker has it; the broker may create it."""
        header = GetSubscriptionGroupConfigRequestHeader(group)
        answer = await self._ask(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        return SubscriptionGroupConfig.decode(answer.body)

    async def get_all_subscription_group(self, address: str) -> SubscriptionGroupWrapper:
        """Return all consumer groups of a broker, and the topics forbidden to them."""
        header = GetAllSubscriptionGroupRequestHeader()
        answer = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        return SubscriptionGroupWrapper.decode(answer.body)

    async def delete_subscription_group(self, address: str, group: str, *, clean_offset: bool = False) -> None:
        """Delete a consumer group on a broker, with its offsets if wanted."""
        header = DeleteSubscriptionGroupRequestHeader(group, clean_offset)
        await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def update_and_get_group_read_forbidden(
        self, address: str, group: str, topic: str, *, readable: bool | None = None
    ) -> GroupForbidden:
        """Allow or forbid a group to read a topic on a broker, if ``readable`` is given; return the state."""
        header = UpdateGroupForbiddenRequestHeader(group, topic, readable)
        answer = await self._ask(address, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return GroupForbidden.decode(answer.body)

    # -- members

    async def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the clients of a producer group at a broker of a topic."""
        header = GetProducerConnectionListRequestHeader(group)
        route = await self.examine_topic_route_info(topic)
        addresses = addresses_of(route.broker_datas)
        if not addresses:
            raise BrokerNotFoundError(f"no broker in the route of {topic} has an address")
        answer = await self._ask(addresses[0], RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        return ProducerConnection.decode(answer.body)

    async def query_topics_by_consumer(self, group: str) -> list[str]:
        """Return the topics that a group has offsets of, on the brokers of its retry topic."""
        header = QueryTopicsByConsumerRequestHeader(group)
        topics: set[str] = set()
        for address in addresses_of((await self._group_route(group)).broker_datas):
            answer = await self._ask(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
            topics.update(TopicList.decode(answer.body).topic_list)
        return sorted(topics)

    async def query_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group's clients to a topic, None if it has no client."""
        header = QuerySubscriptionByConsumerRequestHeader(group, topic)
        answer = await self._ask_first(group, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
        return QuerySubscriptionResponseBody.decode(answer.body).subscription_data

    async def consume_message_directly(
        self, group: str, client_id: str, topic: str, msg_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Let one client of a group consume a message, named by its offset message id, and return the result.

        Raises:
            CodecError: the id is invalid.
        """
        header = ConsumeMessageDirectlyResultRequestHeader(group, client_id, msg_id, topic=topic)
        # A broker reads only the offset in the id: another one would take a message of its own.
        answer = await self._ask(address_in(msg_id), RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        return ConsumeMessageDirectlyResult.decode(answer.body)

    # -- progress

    async def query_consume_time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """Return the store times of the first, last and next message of a group in each queue."""
        header = QueryConsumeTimeSpanRequestHeader(topic, group)
        spans: list[QueueTimeSpan] = []
        for address in addresses_of((await self.examine_topic_route_info(topic)).broker_datas):
            answer = await self._ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            spans += QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
        return spans

    async def query_correction_offset(
        self, address: str, topic: str, compare_group: str, filter_groups: Iterable[str] = ()
    ) -> dict[int, int]:
        """Return the lowest offset of any group by queue id, or 2^63 - 1 where that of ``compare_group`` is lower."""
        header = QueryCorrectionOffsetHeader(compare_group, topic, ",".join(filter_groups) or None)
        answer = await self._ask(address, RequestCode.QUERY_CORRECTION_OFFSET, header)
        return QueryCorrectionOffsetBody.decode(answer.body).correction_offsets

    async def resume_check_half_message(self, address: str, topic: str, msg_id: str) -> None:
        """Let a broker check a discarded transaction again, named by the offset message id of its half message."""
        header = ResumeCheckHalfMessageRequestHeader(topic, msg_id)
        await self._ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
