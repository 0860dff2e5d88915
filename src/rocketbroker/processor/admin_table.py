"""Queries, offsets and administration, one entry a code (org.apache.rocketmq.broker.processor.AdminBrokerProcessor)."""

from rocketbroker.codec.remoting.handler import Audience, MethodTable
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    ExchangeHAInfoRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.broker_config import BrokerConfigProcessor
from rocketbroker.processor.admin.call_consumer import ConsumerCalls
from rocketbroker.processor.admin.clean_expired_consumequeue import CleanExpiredConsumequeueProcessor
from rocketbroker.processor.admin.clean_unused_topic import CleanUnusedTopicProcessor
from rocketbroker.processor.admin.clone_group_offset import CloneGroupOffsetProcessor
from rocketbroker.processor.admin.consume_message_directly import ConsumeMessageDirectlyProcessor
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector
from rocketbroker.processor.admin.delete_expired_commitlog import DeleteExpiredCommitlogProcessor
from rocketbroker.processor.admin.delete_subscriptiongroup import DeleteSubscriptionGroupProcessor
from rocketbroker.processor.admin.delete_topic_in_broker import DeleteTopicInBrokerProcessor
from rocketbroker.processor.admin.exchange_broker_ha_info import ExchangeBrokerHaInfoProcessor
from rocketbroker.processor.admin.get_all_consumer_offset import GetAllConsumerOffsetProcessor
from rocketbroker.processor.admin.get_all_delay_offset import GetAllDelayOffsetProcessor
from rocketbroker.processor.admin.get_all_message_request_mode import GetAllMessageRequestModeProcessor
from rocketbroker.processor.admin.get_all_producer_info import GetAllProducerInfoProcessor
from rocketbroker.processor.admin.get_all_subscriptiongroup_config import GetAllSubscriptionGroupConfigProcessor
from rocketbroker.processor.admin.get_all_topic_config import GetAllTopicConfigProcessor
from rocketbroker.processor.admin.get_broker_consume_stats import GetBrokerConsumeStatsProcessor
from rocketbroker.processor.admin.get_broker_ha_status import GetBrokerHaStatusProcessor
from rocketbroker.processor.admin.get_broker_runtime_info import GetBrokerRuntimeInfoProcessor
from rocketbroker.processor.admin.get_consume_stats import GetConsumeStatsProcessor
from rocketbroker.processor.admin.get_consumer_connection_list import GetConsumerConnectionListProcessor
from rocketbroker.processor.admin.get_consumer_running_info import GetConsumerRunningInfoProcessor
from rocketbroker.processor.admin.get_producer_connection_list import GetProducerConnectionListProcessor
from rocketbroker.processor.admin.get_subscriptiongroup_config import GetSubscriptionGroupConfigProcessor
from rocketbroker.processor.admin.get_system_topic_list_from_broker import GetSystemTopicListFromBrokerProcessor
from rocketbroker.processor.admin.get_timer_check_point import GetTimerCheckPointProcessor
from rocketbroker.processor.admin.get_timer_metrics import GetTimerMetricsProcessor
from rocketbroker.processor.admin.get_topic_config import GetTopicConfigProcessor
from rocketbroker.processor.admin.get_topic_stats_info import GetTopicStatsInfoProcessor
from rocketbroker.processor.admin.invoke_broker_to_get_consumer_status import (
    InvokeBrokerToGetConsumerStatusProcessor,
)
from rocketbroker.processor.admin.invoke_broker_to_reset_offset import InvokeBrokerToResetOffsetProcessor
from rocketbroker.processor.admin.notify_min_broker_id_change import NotifyMinBrokerIdChangeProcessor
from rocketbroker.processor.admin.query_consume_queue import QueryConsumeQueueProcessor
from rocketbroker.processor.admin.query_consume_time_span import QueryConsumeTimeSpanProcessor
from rocketbroker.processor.admin.query_correction_offset import QueryCorrectionOffsetProcessor
from rocketbroker.processor.admin.query_subscription_by_consumer import QuerySubscriptionByConsumerProcessor
from rocketbroker.processor.admin.query_topic_consume_by_who import QueryTopicConsumeByWhoProcessor
from rocketbroker.processor.admin.query_topics_by_consumer import QueryTopicsByConsumerProcessor
from rocketbroker.processor.admin.resume_check_half_message import ResumeCheckHalfMessageProcessor
from rocketbroker.processor.admin.unused_topic_remover import UnusedTopicRemover
from rocketbroker.processor.admin.update_and_create_subscriptiongroup import UpdateAndCreateSubscriptionGroupProcessor
from rocketbroker.processor.admin.update_and_create_topic import UpdateAndCreateTopicProcessor
from rocketbroker.processor.admin.update_and_get_group_forbidden import UpdateAndGetGroupForbiddenProcessor
from rocketbroker.processor.admin.view_broker_stats_data import ViewBrokerStatsDataProcessor
from rocketbroker.processor.get_earliest_msg_storetime import GetEarliestMsgStoretimeProcessor
from rocketbroker.processor.get_max_offset import GetMaxOffsetProcessor
from rocketbroker.processor.get_min_offset import GetMinOffsetProcessor
from rocketbroker.processor.query_message import QueryMessageProcessor
from rocketbroker.processor.search_offset_by_timestamp import SearchOffsetByTimestampProcessor
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.broker_parts import BrokerParts
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.processor.view_message_by_id import ViewMessageByIdProcessor


def add_admin_codes(table: MethodTable, parts: BrokerParts, fast_failure: BrokerFastFailure) -> None:
    """Route the codes of administration tools and of the clients' queries."""
    encoder = AnswerEncoder(parts.config, parts.admin.executor)
    _add_queries(table, parts)
    _add_topics(table, parts, encoder)
    _add_groups(table, parts, encoder)
    _add_offsets(table, parts, encoder)
    _add_clients(table, parts, encoder)
    _add_statistics(table, parts, encoder, fast_failure)
    _add_cleaning(table, parts)


def _add_queries(table: MethodTable, parts: BrokerParts) -> None:
    """Route messages and offsets."""
    add = table.add
    store, waiting = parts.store, WaitingQueries(parts.config)
    add(
        RequestCode.QUERY_MESSAGE,
        QueryMessageProcessor(store.config, store.queries, waiting).process,
        QueryMessageRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.VIEW_MESSAGE_BY_ID,
        ViewMessageByIdProcessor(store.queries, waiting).process,
        ViewMessageRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        SearchOffsetByTimestampProcessor(store.queries, waiting).process,
        SearchOffsetRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.GET_MAX_OFFSET,
        GetMaxOffsetProcessor(store.queues).process,
        GetMaxOffsetRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.GET_MIN_OFFSET,
        GetMinOffsetProcessor(store.queues, parts.topic_configs).process,
        GetMinOffsetRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretimeProcessor(store.queries).process,
        GetEarliestMsgStoretimeRequestHeader,
        Audience.CLIENT,
    )
    add(
        RequestCode.QUERY_CONSUME_QUEUE,
        QueryConsumeQueueProcessor(parts.consumers, parts.consumer_filters, store.queues).process,
        QueryConsumeQueueRequestHeader,
    )
    add(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        ResumeCheckHalfMessageProcessor(
            store.appender, store.queries, store.acknowledgements, parts.transactions
        ).process,
        ResumeCheckHalfMessageRequestHeader,
    )


def _add_topics(table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder) -> None:
    """Route topics."""
    add = table.add
    update_topic = UpdateAndCreateTopicProcessor(parts.config, parts.topic_configs)
    add(RequestCode.UPDATE_AND_CREATE_TOPIC, update_topic.process, CreateTopicRequestHeader)
    add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, update_topic.process_list)
    add(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        DeleteTopicInBrokerProcessor(
            parts.topic_configs, parts.consumer_offsets, parts.store.deletion, parts.stats
        ).process,
        DeleteTopicRequestHeader,
    )
    add(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        GetAllTopicConfigProcessor(parts.topic_configs, encoder).process,
        GetAllTopicConfigRequestHeader,
        Audience.BROKER,
    )
    add(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigProcessor(parts.topic_configs).process, GetTopicConfigRequestHeader)
    add(
        RequestCode.GET_TOPIC_STATS_INFO,
        GetTopicStatsInfoProcessor(
            parts.config.broker_name,
            parts.topic_configs,
            parts.store.queues,
            parts.store.queries,
            parts.stats,
            encoder,
        ).process,
        GetTopicStatsInfoRequestHeader,
    )
    add(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        GetSystemTopicListFromBrokerProcessor(parts.topic_configs).process,
    )


def _add_groups(table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder) -> None:
    """Route groups and their offsets."""
    add = table.add
    update_group = UpdateAndCreateSubscriptionGroupProcessor(parts.subscription_groups)
    add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, update_group.process)
    add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, update_group.process_list)
    add(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        GetAllSubscriptionGroupConfigProcessor(parts.subscription_groups, encoder).process,
        GetAllSubscriptionGroupRequestHeader,
        Audience.BROKER,
    )
    add(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        GetSubscriptionGroupConfigProcessor(parts.subscription_groups).process,
        GetSubscriptionGroupConfigRequestHeader,
    )
    add(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        DeleteSubscriptionGroupProcessor(parts.subscription_groups, parts.consumer_offsets, parts.stats).process,
        DeleteSubscriptionGroupRequestHeader,
    )
    add(
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        GetAllConsumerOffsetProcessor(parts.consumer_offsets, encoder).process,
        audience=Audience.BROKER,
    )
    add(RequestCode.GET_ALL_DELAY_OFFSET, GetAllDelayOffsetProcessor(parts.schedule).process, audience=Audience.BROKER)
    add(RequestCode.GET_TIMER_CHECK_POINT, GetTimerCheckPointProcessor(parts.timer).process, audience=Audience.BROKER)
    add(
        RequestCode.GET_TIMER_METRICS,
        GetTimerMetricsProcessor(parts.admin.copied.timer_metrics).process,
        audience=Audience.BROKER,
    )
    add(
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        GetAllMessageRequestModeProcessor(parts.admin.copied.message_request_modes).process,
        audience=Audience.BROKER,
    )
    add(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        QueryTopicConsumeByWhoProcessor(parts.consumers, parts.consumer_offsets).process,
        QueryTopicConsumeByWhoRequestHeader,
    )
    add(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        QueryTopicsByConsumerProcessor(parts.config, parts.consumer_offsets).process,
        QueryTopicsByConsumerRequestHeader,
    )
    add(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        QuerySubscriptionByConsumerProcessor(parts.consumers).process,
        QuerySubscriptionByConsumerRequestHeader,
    )
    add(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        UpdateAndGetGroupForbiddenProcessor(parts.topic_configs, parts.subscription_groups).process,
        UpdateGroupForbiddenRequestHeader,
    )


def _add_offsets(table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder) -> None:
    """Route resets and comparisons of offsets."""
    add = table.add
    add(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        InvokeBrokerToResetOffsetProcessor(
            parts.config,
            parts.topic_configs,
            parts.subscription_groups,
            parts.consumers,
            parts.consumer_offsets,
            parts.store.queues,
            parts.store.queries,
            parts.offset_reset,
            encoder,
        ).process,
        ResetOffsetRequestHeader,
    )
    add(
        RequestCode.CLONE_GROUP_OFFSET,
        CloneGroupOffsetProcessor(
            parts.topic_configs, parts.subscription_groups, parts.consumers, parts.consumer_offsets, parts.offset_reset
        ).process,
        CloneGroupOffsetRequestHeader,
    )
    add(
        RequestCode.QUERY_CORRECTION_OFFSET,
        QueryCorrectionOffsetProcessor(parts.consumer_offsets, parts.store.queues).process,
        QueryCorrectionOffsetHeader,
    )


def _add_clients(table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder) -> None:
    """Route clients, and requests relayed to them."""
    add = table.add
    calls = ConsumerCalls(parts.config, parts.consumers)
    add(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListProcessor(parts.consumers, encoder).process,
        GetConsumerConnectionListRequestHeader,
    )
    add(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        GetProducerConnectionListProcessor(parts.producers, encoder).process,
        GetProducerConnectionListRequestHeader,
    )
    add(
        RequestCode.GET_ALL_PRODUCER_INFO,
        GetAllProducerInfoProcessor(parts.producers, parts.clock, encoder).process,
        GetAllProducerInfoRequestHeader,
    )
    add(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        GetConsumerRunningInfoProcessor(calls).process,
        GetConsumerRunningInfoRequestHeader,
    )
    add(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        InvokeBrokerToGetConsumerStatusProcessor(parts.consumers).process,
        GetConsumerStatusRequestHeader,
    )
    add(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        ConsumeMessageDirectlyProcessor(
            parts.config.broker_name, parts.topic_configs, parts.subscription_groups, calls, parts.store.queries
        ).process,
        ConsumeMessageDirectlyResultRequestHeader,
    )


def _add_statistics(
    table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder, fast_failure: BrokerFastFailure
) -> None:
    """Route settings and figures of the broker."""
    add = table.add
    admin = parts.admin
    settings = BrokerConfigProcessor(
        admin.models, admin.persist_path, admin.executor, admin.register, admin.readmit, parts.clock
    )
    collector = ConsumeStatsCollector(
        parts.config.broker_name,
        parts.topic_configs,
        parts.consumer_offsets,
        parts.consumers,
        parts.store.queues,
        parts.store.queries,
        parts.stats,
        encoder,
    )
    add(RequestCode.UPDATE_BROKER_CONFIG, settings.process_update)
    add(RequestCode.GET_BROKER_CONFIG, settings.process_get)
    add(
        RequestCode.GET_BROKER_RUNTIME_INFO,
        GetBrokerRuntimeInfoProcessor(
            parts.store,
            parts.stats,
            parts.schedule,
            parts.consumers,
            parts.admin.is_active,
            parts.clock,
            parts.admin.executor,
            parts.timer.runtime_info,
            fast_failure.runtime_info,
            parts.admin.replication_problem,
        ).process,
        audience=Audience.BROKER,
    )
    add(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        NotifyMinBrokerIdChangeProcessor(parts.admin.look_for_members).process,
        audience=Audience.BROKER,
    )
    add(
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        ExchangeBrokerHaInfoProcessor(parts.admin.own_ha_info, parts.admin.hand_over).process,
        ExchangeHAInfoRequestHeader,
        Audience.BROKER,
    )
    add(RequestCode.GET_BROKER_HA_STATUS, GetBrokerHaStatusProcessor(parts.admin.ha_status).process)
    add(RequestCode.GET_CONSUME_STATS, GetConsumeStatsProcessor(collector).process, GetConsumeStatsRequestHeader)
    add(
        RequestCode.GET_BROKER_CONSUME_STATS,
        GetBrokerConsumeStatsProcessor(parts.config, parts.subscription_groups, collector).process,
        GetConsumeStatsInBrokerHeader,
    )
    add(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        QueryConsumeTimeSpanProcessor(
            parts.config.broker_name,
            parts.topic_configs,
            parts.consumer_offsets,
            parts.store.queues,
            parts.store.queries,
            parts.clock,
            encoder,
        ).process,
        QueryConsumeTimeSpanRequestHeader,
    )
    add(
        RequestCode.VIEW_BROKER_STATS_DATA,
        ViewBrokerStatsDataProcessor(parts.stats).process,
        ViewBrokerStatsDataRequestHeader,
    )


def _add_cleaning(table: MethodTable, parts: BrokerParts) -> None:
    """Route the removal of messages and queues on demand."""
    add = table.add
    cleaning = parts.admin.cleaning
    remover = UnusedTopicRemover(parts.topic_configs, parts.consumer_offsets, parts.store.deletion, parts.stats)
    add(RequestCode.DELETE_EXPIRED_COMMITLOG, DeleteExpiredCommitlogProcessor(cleaning).process)
    add(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        CleanExpiredConsumequeueProcessor(cleaning, parts.store.queues, remover).process,
    )
    add(RequestCode.CLEAN_UNUSED_TOPIC, CleanUnusedTopicProcessor(parts.store.queues, remover).process)
