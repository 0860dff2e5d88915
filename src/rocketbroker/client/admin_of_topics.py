"""Administration of topics."""

from collections.abc import Iterable

from rocketbroker.client.admin_connection import AdminConnection, addresses_of
from rocketbroker.client.message import check_topic
from rocketbroker.client.requests import answer_header
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC
from rocketbroker.codec.remoting.bodies.offset import TopicStatsTable
from rocketbroker.codec.remoting.bodies.topic_config import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)
from rocketbroker.codec.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader, PutKVConfigRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class TopicAdmin(AdminConnection):
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

    async def create_or_update_order_conf(self, topic: str, order_conf: str) -> None:
        """Fix the queues of an ordered topic at all name servers: ``broker:number;broker:number``."""
        header = PutKVConfigRequestHeader(NAMESPACE_ORDER_TOPIC_CONFIG, topic, order_conf)
        await self._ask_name_servers(RequestCode.PUT_KV_CONFIG, header)

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

    async def examine_topic_stats(self, topic: str, route_topic: str | None = None) -> TopicStatsTable:
        """Return the offsets of all queues of a topic, on the brokers of its route or that of ``route_topic``."""
        route = await self.examine_topic_route_info(route_topic or topic)
        total = TopicStatsTable()
        for address in addresses_of(route.broker_datas):
            header = GetTopicStatsInfoRequestHeader(topic)
            stats = TopicStatsTable.decode((await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)).body)
            total.offset_table.update(stats.offset_table)
            total.topic_put_tps += stats.topic_put_tps
        return total

    async def earliest_msg_store_time(self, address: str, topic: str, queue_id: int) -> int:
        """Return the store time of the first message of a queue in ms, -1 if it has none."""
        header = GetEarliestMsgStoretimeRequestHeader(topic, queue_id)
        answer = await self._ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return answer_header(answer, GetEarliestMsgStoretimeResponseHeader).timestamp
