"""Body types of the requests and answers of each recorded code."""

from typing import NamedTuple

from rocketbroker.codec.remoting.bodies import (
    client,
    offset,
    pop,
    register_broker_body,
    remoting_serializable,
    route,
    topic_config,
)
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from tests.support.golden_frames import Exchange, answers_to, requests_of

REQUESTS: dict[int, type[RemotingSerializable]] = {
    18: topic_config.CreateTopicListRequestBody,
    34: client.HeartbeatData,
    41: client.LockBatchRequestBody,
    42: client.UnlockBatchRequestBody,
    46: client.CheckClientRequestBody,
    103: register_broker_body.RegisterBrokerBody,
    200: topic_config.SubscriptionGroupConfig,
    217: route.TopicRouteData,
    225: topic_config.SubscriptionGroupList,
    322: remoting_serializable.DataVersion,
}

RESPONSES: dict[int, type[RemotingSerializable]] = {
    21: topic_config.TopicConfigAndMappingSerializeWrapper,
    28: remoting_serializable.KVTable,
    38: client.GetConsumerListByGroupResponseBody,
    41: client.LockBatchResponseBody,
    43: offset.ConsumerOffsetSerializeWrapper,
    45: offset.DelayOffsetSerializeWrapper,
    61: offset.TimerMetricsSerializeWrapper,
    103: remoting_serializable.KVTable,
    105: route.TopicRouteData,
    106: route.ClusterInfo,
    201: topic_config.SubscriptionGroupWrapper,
    202: offset.TopicStatsTable,
    203: client.ConsumerConnection,
    204: client.ProducerConnection,
    206: remoting_serializable.TopicList,
    208: offset.ConsumeStats,
    219: remoting_serializable.KVTable,
    221: offset.GetConsumerStatusBody,
    222: offset.ResetOffsetBody,
    223: offset.GetConsumerStatusBody,
    224: remoting_serializable.TopicList,
    300: remoting_serializable.GroupList,
    303: offset.QueryConsumeTimeSpanBody,
    304: remoting_serializable.TopicList,
    305: remoting_serializable.TopicList,
    308: offset.QueryCorrectionOffsetBody,
    311: remoting_serializable.TopicList,
    312: remoting_serializable.TopicList,
    313: remoting_serializable.TopicList,
    315: offset.BrokerStatsData,
    317: offset.ConsumeStatsList,
    321: offset.QueryConsumeQueueResponseBody,
    322: remoting_serializable.DataVersion,
    328: client.ProducerTableInfo,
    343: remoting_serializable.TopicList,
    345: client.QuerySubscriptionResponseBody,
    352: topic_config.SubscriptionGroupConfig,
    353: topic_config.GroupForbidden,
    402: pop.MessageRequestModeSerializeWrapper,
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
