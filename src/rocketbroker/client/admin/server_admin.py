"""Administration of name servers and brokers: settings, permissions, statistics, and the tables of slaves."""

from collections.abc import Mapping

from rocketbroker.client.admin.admin_connection import AdminConnection, settings_body, settings_in
from rocketbroker.client.core.requests import answer_header, check_success, client_request
from rocketbroker.codec.remoting.bodies.client import ProducerTableInfo
from rocketbroker.codec.remoting.bodies.offset import (
    BrokerStatsData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    HARuntimeInfo,
    QueryConsumeQueueResponseBody,
    TimerMetricsSerializeWrapper,
)
from rocketbroker.codec.remoting.bodies.pop import MessageRequestModeSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable, TopicList
from rocketbroker.codec.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.headers.admin import (
    GetAllProducerInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import QueryConsumeQueueRequestHeader
from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.common.errors import BrokerResponseError


class ServerAdmin(AdminConnection):
    """Calls about name servers and brokers."""

    # -- name servers

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value of the KV configuration at all name servers."""
        header = PutKVConfigRequestHeader(namespace, key, value)
        await self._ask_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv_config(self, namespace: str, key: str) -> str | None:
        """Return a value of the KV configuration, None if there is none."""
        try:
            answer = await self._ask_name_server(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace, key))
        except BrokerResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return answer_header(answer, GetKVConfigResponseHeader).value

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value of the KV configuration at all name servers."""
        await self._ask_name_servers(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace, key))

    async def get_kv_list_by_namespace(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace of the KV configuration."""
        header = GetKVListByNamespaceRequestHeader(namespace)
        answer = await self._ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return KVTable.decode(answer.body).table

    async def wipe_write_perm_of_broker(self, broker_name: str) -> dict[str, int]:
        """Let producers send to other brokers; return the number of topics changed at each name server."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name)
        answers = await self._ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return {
            address: answer_header(answer, WipeWritePermOfBrokerResponseHeader).wipe_topic_count
            for address, answer in answers.items()
        }

    async def add_write_perm_of_broker(self, broker_name: str) -> dict[str, int]:
        """Let producers send to a broker again; return the number of topics changed at each name server."""
        header = AddWritePermOfBrokerRequestHeader(broker_name)
        answers = await self._ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return {
            address: answer_header(answer, AddWritePermOfBrokerResponseHeader).add_topic_count
            for address, answer in answers.items()
        }

    async def get_name_server_config(self, address: str | None = None) -> dict[str, dict[str, str]]:
        """Return the settings of each name server by address, or of the one at ``address``."""
        addresses = await self.name_server_addresses() if address is None else [address]
        return {each: settings_in(await self._ask(each, RequestCode.GET_NAMESRV_CONFIG), each) for each in addresses}

    async def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all name servers."""
        await self._ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=settings_body(settings))

    async def get_broker_member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup | None:
        """Return the addresses of a broker name by id; Apache's name server has none for an unknown name."""
        header = GetBrokerMemberGroupRequestHeader(cluster, broker_name)
        answer = await self._ask_name_server(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        return GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group

    # -- lists of topics at name servers

    async def get_topics_by_cluster(self, cluster: str) -> list[str]:
        """Return the topics of a cluster."""
        header = GetTopicsByClusterRequestHeader(cluster)
        return _topics(await self._ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header))

    async def get_system_topic_list(self) -> list[str]:
        """Return the names that topics cannot have: those of clusters and brokers."""
        return _topics(await self._ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))

    async def get_unit_topic_list(self) -> list[str]:
        """Return the topics of units."""
        return _topics(await self._ask_name_server(RequestCode.GET_UNIT_TOPIC_LIST))

    async def get_has_unit_sub_topic_list(self) -> list[str]:
        """Return the topics that groups of units consume."""
        return _topics(await self._ask_name_server(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST))

    async def get_has_unit_sub_un_unit_topic_list(self) -> list[str]:
        """Return the topics outside units that groups of units consume."""
        return _topics(await self._ask_name_server(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST))

    # -- brokers

    async def get_broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of a broker, all values as text."""
        return settings_in(await self._ask(address, RequestCode.GET_BROKER_CONFIG), address)

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a broker."""
        await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=settings_body(settings))

    async def get_broker_ha_status(self, address: str) -> HARuntimeInfo:
        """Return the slaves of a master, or the copying of a slave."""
        return HARuntimeInfo.decode((await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)).body)

    async def get_system_topic_list_from_broker(self, address: str) -> list[str]:
        """Return the system topics of a broker."""
        return _topics(await self._ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))

    async def view_broker_stats_data(self, address: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """Return the sums and rates of a counter, such as TOPIC_PUT_NUMS of a topic."""
        header = ViewBrokerStatsDataRequestHeader(stats_name, stats_key)
        return BrokerStatsData.decode((await self._ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body)

    async def fetch_consume_stats_in_broker(
        self, address: str, *, is_order: bool = False, timeout_s: float | None = None
    ) -> ConsumeStatsList:
        """Return the progress of all groups of a broker; with ``is_order`` for ordered topics alone.

        Args:
            address: ``host:port`` of the broker.
            is_order: limit it to ordered topics.
            timeout_s: limit for the answer, which may be long; by default that of every request.
        """
        command = client_request(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(is_order))
        answer = await self._invoke(address, command, timeout_s)
        return ConsumeStatsList.decode(check_success(answer).body)

    async def get_all_producer_info(self, address: str) -> ProducerTableInfo:
        """Return the producers of a broker by group."""
        header = GetAllProducerInfoRequestHeader()
        return ProducerTableInfo.decode((await self._ask(address, RequestCode.GET_ALL_PRODUCER_INFO, header)).body)

    async def query_consume_queue(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Return entries of a queue from an offset on, and the subscription of a group."""
        header = QueryConsumeQueueRequestHeader(topic, queue_id, index, count, group)
        answer = await self._ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        return QueryConsumeQueueResponseBody.decode(answer.body)

    async def export_pop_records(self, address: str) -> None:
        """Let a broker write its pop records from RocksDB to the log (POP_ROLLBACK); one without RocksDB has none."""
        await self._ask(address, RequestCode.POP_ROLLBACK)

    # -- tables that slaves copy

    async def get_all_consumer_offset(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """Return the offsets of all groups of a broker."""
        answer = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return ConsumerOffsetSerializeWrapper.decode(answer.body)

    async def get_all_delay_offset(self, address: str) -> DelayOffsetSerializeWrapper:
        """Return the progress of the delay levels of a broker."""
        answer = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        return DelayOffsetSerializeWrapper.decode(answer.body)

    async def get_timer_check_point(self, address: str) -> TimerCheckpoint:
        """Return the progress of the timer of a broker."""
        return decode_timer_checkpoint((await self._ask(address, RequestCode.GET_TIMER_CHECK_POINT)).body)

    async def get_timer_metrics(self, address: str) -> TimerMetricsSerializeWrapper:
        """Return the waiting timer messages of a broker by topic."""
        return TimerMetricsSerializeWrapper.decode((await self._ask(address, RequestCode.GET_TIMER_METRICS)).body)

    async def get_all_message_request_mode(self, address: str) -> MessageRequestModeSerializeWrapper:
        """Return the groups of a broker that pop instead of pull."""
        answer = await self._ask(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return MessageRequestModeSerializeWrapper.decode(answer.body)


def _topics(answer: Command) -> list[str]:
    return TopicList.decode(answer.body).topic_list if answer.body else []
