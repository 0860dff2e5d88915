"""Body types of the requests and answers of each recorded code."""

from typing import NamedTuple

from rocketbroker.codec.remoting.bodies import (
    connection,
    data_version,
    heartbeat,
    lock_batch,
    offset,
    register_broker_body,
    route,
    slave_tables,
    statistics,
    subscription_group,
    tables,
    topic_config,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from tests.support.golden_frames import Exchange, answers_to, requests_of

REQUESTS: dict[int, type[RemotingSerializable]] = {
    18: topic_config.CreateTopicListRequestBody,
    34: heartbeat.HeartbeatData,
    41: lock_batch.LockBatchRequestBody,
    42: lock_batch.UnlockBatchRequestBody,
    46: heartbeat.CheckClientRequestBody,
    103: register_broker_body.RegisterBrokerBody,
    200: subscription_group.SubscriptionGroupConfig,
    217: route.TopicRouteData,
    225: subscription_group.SubscriptionGroupList,
    322: data_version.DataVersion,
}

RESPONSES: dict[int, type[RemotingSerializable]] = {
    21: topic_config.TopicConfigAndMappingSerializeWrapper,
    28: tables.KVTable,
    38: connection.GetConsumerListByGroupResponseBody,
    41: lock_batch.LockBatchResponseBody,
    43: offset.ConsumerOffsetSerializeWrapper,
    45: offset.DelayOffsetSerializeWrapper,
    61: slave_tables.TimerMetricsSerializeWrapper,
    103: tables.KVTable,
    105: route.TopicRouteData,
    106: route.ClusterInfo,
    201: subscription_group.SubscriptionGroupWrapper,
    202: statistics.TopicStatsTable,
    203: connection.ConsumerConnection,
    204: connection.ProducerConnection,
    206: tables.TopicList,
    208: statistics.ConsumeStats,
    219: tables.KVTable,
    221: offset.GetConsumerStatusBody,
    222: offset.ResetOffsetBody,
    223: offset.GetConsumerStatusBody,
    224: tables.TopicList,
    300: tables.GroupList,
    303: statistics.QueryConsumeTimeSpanBody,
    304: tables.TopicList,
    305: tables.TopicList,
    308: offset.QueryCorrectionOffsetBody,
    311: tables.TopicList,
    312: tables.TopicList,
    313: tables.TopicList,
    315: statistics.BrokerStatsData,
    317: statistics.ConsumeStatsList,
    321: offset.QueryConsumeQueueResponseBody,
    322: data_version.DataVersion,
    328: connection.ProducerTableInfo,
    343: tables.TopicList,
    345: connection.QuerySubscriptionResponseBody,
    352: subscription_group.SubscriptionGroupConfig,
    353: subscription_group.GroupForbidden,
    402: slave_tables.MessageRequestModeSerializeWrapper,
    901: route.GetBrokerMemberGroupResponseBody,
}


class GoldenBody(NamedTuple):
    """A recorded body and the exchange it belongs to."""

    data: bytes
    exchange: Exchange


def request_bodies(code: int) -> list[GoldenBody]:
    """Return the bodies of requests with this code."""
    return [GoldenBody(frame.body(), Exchange(frame, None)) for frame in requests_of(code) if frame.body()]


def answer_bodies(code: int) -> list[GoldenBody]:
    """Return the bodies of successful answers to this code."""
    return [
        GoldenBody(exchange.response.body(), exchange)
        for exchange in answers_to(code)
        if exchange.response and exchange.response.code == 0 and exchange.response.body()
    ]
