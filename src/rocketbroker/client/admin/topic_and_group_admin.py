"""Administration of topics, and of consumer and producer groups."""

from collections.abc import Iterable, Sequence

from rocketbroker.client.admin.admin_connection import AdminConnection, address_in, addresses_of
from rocketbroker.client.admin.server_admin import ServerAdmin
from rocketbroker.client.core.errors import BrokerNotFoundError
from rocketbroker.client.core.message import check_group, check_topic
from rocketbroker.client.core.requests import answer_header
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ProducerConnection,
    QuerySubscriptionResponseBody,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import (
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    TopicStatsTable,
)
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    QueryCorrectionOffsetHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketbroker.codec.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RocketBrokerError

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class TopicAdmin(ServerAdmin):
    """Calls about topics, at name servers and brokers."""

    async def create_and_update_topic_config(self, address: str, config: TopicConfig) -> None:
        """Make a topic on a broker, or change it; in ``attributes`` a key has its ``+`` or ``-``."""
        check_topic(config.topic_name)
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=",".join(f"{key}={value}" if value else key for key, value in config.attributes.items()) or None,
        )
        await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_and_update_topic_config_list(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Make topics on a broker, or change them."""
        configs = list(configs)
        for config in configs:
            check_topic(config.topic_name)
        body = CreateTopicListRequestBody(configs).encode()
        await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    async def create_or_update_order_conf(self, topic: str, order_conf: str, *, is_cluster: bool = True) -> str:
        """Fix the queues of an ordered topic at all name servers; return what they have now.

        Args:
            topic: the topic.
            order_conf: ``broker:number;broker:number``.
            is_cluster: replace all that there is; otherwise keep the entries of other brokers.
        """
        if not is_cluster and (present := await self.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)):
            entries = dict(part.rsplit(":", 1) for part in f"{present};{order_conf}".split(";") if ":" in part)
            order_conf = ";".join(f"{broker}:{number}" for broker, number in entries.items())
        await self.put_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic, order_conf)
        return order_conf

    async def delete_topic_in_broker(self, addresses: Iterable[str], topic: str) -> None:
        """Delete a topic and its queues on brokers."""
        for address in addresses:
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))

    async def delete_topic_in_name_server(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic's route at all name servers."""
        header = DeleteTopicFromNamesrvRequestHeader(topic, cluster)
        await self._ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def examine_topic_config(self, address: str, topic: str) -> TopicConfig:
        """Return a topic as a broker has it."""
        header = GetTopicConfigRequestHeader(topic)
        return TopicConfig.decode((await self._ask(address, RequestCode.GET_TOPIC_CONFIG, header)).body)

    async def get_all_topic_config(self, address: str) -> dict[str, TopicConfig]:
        """Return all topics of a broker by name."""
        answer = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequestHeader())
        return TopicConfigSerializeWrapper.decode(answer.body).topic_config_table

    async def examine_topic_stats(
        self,
        topic: str,
        route_topic: str | None = None,
        *,
        addresses: Sequence[str] | None = None,
        failures: dict[str, RocketBrokerError] | None = None,
    ) -> TopicStatsTable:
        """Return the offsets of all queues of a topic.

        Args:
            topic: the topic.
            route_topic: topic or cluster whose route to use, for an LMQ.
            addresses: the brokers to ask; by default those of the route.
            failures: takes the errors of brokers by address, if another one answers; without it they are raised.
        """

        async def ask(address: str) -> TopicStatsTable:
            header = GetTopicStatsInfoRequestHeader(topic)
            return TopicStatsTable.decode((await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)).body)

        if addresses is None:
            addresses = addresses_of((await self.examine_topic_route_info(route_topic or topic)).broker_datas)
        total = TopicStatsTable()
        for stats in await self._of_each(addresses, ask, failures):
            total.offset_table.update(stats.offset_table)
            total.topic_put_tps += stats.topic_put_tps
        return total

    async def earliest_msg_store_time(self, address: str, topic: str, queue_id: int) -> int:
        """Return the store time of the first message of a queue in ms, -1 if it has none."""
        header = GetEarliestMsgStoretimeRequestHeader(topic, queue_id)
        answer = await self._ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return answer_header(answer, GetEarliestMsgStoretimeResponseHeader).timestamp


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

    async def set_message_request_mode(
        self, address: str, topic: str, group: str, mode: MessageRequestMode, pop_share_queue_num: int = 0
    ) -> None:
        """Let a group pull or pop a topic on a broker; see SetMessageRequestModeRequestBody."""
        check_topic(topic)
        check_group(group)
        body = SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queue_num)
        await self._ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())

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
