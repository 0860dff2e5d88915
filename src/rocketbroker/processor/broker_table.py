"""Request codes of the broker: each family with the parts that it needs (BrokerController.registerProcessor)."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.slave_synchronize import CopiedTables
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.codec.message.message_id import UniqueIds
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.handler import Audience, MethodTable, Route
from rocketbroker.codec.remoting.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    ExchangeHAInfoResponseHeader,
    GetAllProducerInfoRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
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
    UnregisterClientRequestHeader,
    UpdateGroupForbiddenRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketbroker.codec.remoting.headers.message import (
    CloneGroupOffsetRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetConsumerStatusRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryMessageRequestHeader,
    RecallMessageRequestHeader,
    ResetOffsetRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    SearchOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.admin.clients import (
    ConsumeMessageDirectlyProcessor,
    ConsumerCalls,
    GetAllProducerInfoProcessor,
    GetConsumerConnectionListProcessor,
    GetConsumerRunningInfoProcessor,
    GetProducerConnectionListProcessor,
    InvokeBrokerToGetConsumerStatusProcessor,
)
from rocketbroker.processor.admin.groups import (
    DeleteSubscriptionGroupProcessor,
    GetAllSubscriptionGroupConfigProcessor,
    GetSubscriptionGroupConfigProcessor,
    QuerySubscriptionByConsumerProcessor,
    QueryTopicConsumeByWhoProcessor,
    QueryTopicsByConsumerProcessor,
    UpdateAndCreateSubscriptionGroupProcessor,
    UpdateAndGetGroupForbiddenProcessor,
)
from rocketbroker.processor.admin.messages import (
    DeleteExpiredCommitlogProcessor,
    QueryConsumeQueueProcessor,
    ResumeCheckHalfMessageProcessor,
)
from rocketbroker.processor.admin.offsets import (
    CloneGroupOffsetProcessor,
    GetEarliestMsgStoretimeProcessor,
    GetMaxOffsetProcessor,
    GetMinOffsetProcessor,
    InvokeBrokerToResetOffsetProcessor,
    QueryCorrectionOffsetProcessor,
    SearchOffsetByTimestampProcessor,
)
from rocketbroker.processor.admin.runtime_info import GetBrokerRuntimeInfoProcessor
from rocketbroker.processor.admin.settings import BrokerConfigProcessor
from rocketbroker.processor.admin.slaves import SlaveRequests
from rocketbroker.processor.admin.statistics import (
    ConsumeStatsCollector,
    GetBrokerConsumeStatsProcessor,
    GetConsumeStatsProcessor,
    GetTopicStatsInfoProcessor,
    QueryConsumeTimeSpanProcessor,
    ViewBrokerStatsDataProcessor,
)
from rocketbroker.processor.admin.topics import (
    CleanExpiredConsumequeueProcessor,
    CleanUnusedTopicProcessor,
    DeleteTopicInBrokerProcessor,
    GetAllTopicConfigProcessor,
    GetSystemTopicListFromBrokerProcessor,
    GetTopicConfigProcessor,
    UnusedTopicRemover,
    UpdateAndCreateTopicProcessor,
)
from rocketbroker.processor.client_manage import (
    CheckClientConfigProcessor,
    GetConsumerListByGroupProcessor,
    LockBatchMqProcessor,
    UnlockBatchMqProcessor,
    UnregisterClientProcessor,
)
from rocketbroker.processor.consumer_offset import QueryConsumerOffsetProcessor, UpdateConsumerOffsetProcessor
from rocketbroker.processor.consumer_send_msg_back import ConsumerSendMsgBackProcessor
from rocketbroker.processor.end_transaction import EndTransactionProcessor
from rocketbroker.processor.heart_beat import HeartbeatLimit, HeartBeatProcessor
from rocketbroker.processor.pull_message import PullMessageProcessor
from rocketbroker.processor.query_message import QueryMessageProcessor, ViewMessageByIdProcessor
from rocketbroker.processor.recall_message import RecallMessageProcessor
from rocketbroker.processor.send_message import SendMessageProcessor
from rocketbroker.processor.send_reply_message import SendReplyMessageProcessor
from rocketbroker.processor.slave_reads import SlaveReads
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.long_answers import AnswerEncoder
from rocketbroker.processor.support.pull_accounts import PullAccounts
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.request_family import routes_of
from rocketbroker.processor.support.slave_refusals import SlaveState, with_slave_refusals
from rocketbroker.processor.support.topic_target import RetryAndDlq, TopicTargets
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class AdminParts:
    """Parts that only administration needs.

    Attributes:
        models: the settings, as GET_BROKER_CONFIG shows them.
        persist_path: file for changed settings.
        executor: threads for file work.
        register: registers the broker again after its address or permission has changed.
        readmit: checks again what connected peers may send, after settings of protected mode have changed.
        is_active: returns true if the services that only a master runs are on.
        cleaning: removal of old files.
        copied: tables that a slave only keeps for its master.
        ha_status: returns the state of replication.
        replication_problem: returns the reason why this slave does not follow its master, empty if it does.
        look_for_members: has this slave ask the name servers for the live brokers of its name.
        own_ha_info: returns the addresses of this master, ``None`` at a slave.
        hand_over: called at a slave with a master that is about to register.
    """

    models: tuple[ConfigModel, ...]
    persist_path: Path
    executor: Executor
    register: Callable[[], Collection[asyncio.Future[None]]]
    readmit: Callable[[], None]
    is_active: Callable[[], bool]
    cleaning: CleanFilesService
    copied: CopiedTables
    ha_status: Callable[[], HARuntimeInfo]
    replication_problem: Callable[[], str]
    look_for_members: Callable[[], None]
    own_ha_info: Callable[[], ExchangeHAInfoResponseHeader | None]
    hand_over: Callable[[Master], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """Parts of a broker that processors work on.

    ``slave`` is the state of a slave towards its master, ``None`` at a master.
    """

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    offset_reset: OffsetReset
    consumer_filters: ConsumerFilterManager
    consumers: ConsumerManager
    producers: ProducerManager
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    schedule: ScheduleMessageService
    transactions: TransactionalMessageService
    timer: TimerMessageStore
    handle_schedule_message: HandleScheduleMessage
    hold_service: PullRequestHoldService
    send_backs: SendBackAllowance
    slave: SlaveState | None
    admin: AdminParts


def add_admin_codes(table: MethodTable, parts: BrokerParts, fast_failure: BrokerFastFailure) -> None:
    """Route the codes of administration tools and of the clients' queries."""
    encoder = AnswerEncoder(parts.config, parts.admin.executor)
    _add_queries(table, parts)
    _add_topics(table, parts, encoder)
    _add_groups(table, parts, encoder)
    _add_offsets(table, parts, encoder)
    _add_clients_of_administration(table, parts, encoder)
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


def _add_clients_of_administration(table: MethodTable, parts: BrokerParts, encoder: AnswerEncoder) -> None:
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


# Request codes of the broker and their processors, one entry each (BrokerController.registerProcessor).
#
# Only this table sees all parts of the broker; each processor gets the few that it needs.


def broker_routes(parts: BrokerParts) -> dict[int, Route]:
    """Route all codes that the broker serves."""
    table = MethodTable()
    # Shared, as in RocketMQ, where one thread pool serves sends and messages sent back.
    fast_failure = BrokerFastFailure(parts.config)
    _add_messages(table, parts, fast_failure)
    _add_clients(table, parts)
    add_admin_codes(table, parts, fast_failure)
    is_slave = parts.slave is not None
    families = _families(parts)
    routes = with_slave_refusals(table.routes) if is_slave else table.routes
    return routes | routes_of(families, is_slave=is_slave)


def _families(parts: BrokerParts) -> list[object]:
    admin = parts.admin
    encoder = AnswerEncoder(parts.config, admin.executor)
    return [
        SlaveRequests(
            offsets=parts.consumer_offsets,
            schedule=parts.schedule,
            timer=parts.timer,
            copied=admin.copied,
            ha_status=admin.ha_status,
            look_for_members=admin.look_for_members,
            own_ha_info=admin.own_ha_info,
            hand_over=admin.hand_over,
            encoder=encoder,
        ),
    ]


def _add_messages(table: MethodTable, parts: BrokerParts, fast_failure: BrokerFastFailure) -> None:
    store = parts.store
    store_host = store.commit_log.store_host
    puts = MessagePuts.of(store)
    retry_and_dlq = RetryAndDlq(parts.subscription_groups, parts.topic_configs, parts.locks, parts.stats)
    targets = TopicTargets(parts.config, parts.topic_configs, parts.stats)
    send = SendMessageProcessor(
        parts.config,
        puts,
        targets,
        retry_and_dlq,
        UniqueIds(store_host[:-4], os.getpid(), secrets.randbits(32), parts.clock.time_ms),
        parts.handle_schedule_message,
        fast_failure,
    )
    for code, header_type, runs in (
        (RequestCode.SEND_MESSAGE, SendMessageRequestHeader, send.runs),
        (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, send.runs),
        (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, send.batch_runs),
    ):
        table.add(code, send.process, header_type, Audience.CLIENT, takes_large_bodies=True, runs=runs)
    reply = SendReplyMessageProcessor(
        parts.config,
        puts,
        targets,
        parts.producers,
        parts.clock,
    ).process
    table.add(RequestCode.SEND_REPLY_MESSAGE, reply, SendMessageRequestHeader, Audience.CLIENT, takes_large_bodies=True)
    table.add(
        RequestCode.SEND_REPLY_MESSAGE_V2, reply, SendMessageRequestHeaderV2, Audience.CLIENT, takes_large_bodies=True
    )
    pull = _pulls(parts).process
    table.add(RequestCode.PULL_MESSAGE, pull, PullMessageRequestHeader, Audience.CLIENT)
    table.add(RequestCode.LITE_PULL_MESSAGE, pull, PullMessageRequestHeader, Audience.CLIENT)
    send_back = ConsumerSendMsgBackProcessor(
        parts.config,
        parts.subscription_groups,
        parts.topic_configs,
        store.appender,
        store.queries,
        store.acknowledgements,
        store_host=store_host,
        schedule=parts.handle_schedule_message,
        stats=parts.stats,
        fast_failure=fast_failure,
        allowance=parts.send_backs,
    )
    table.add(RequestCode.CONSUMER_SEND_MSG_BACK, send_back.process, ConsumerSendMsgBackRequestHeader, Audience.CLIENT)
    end = EndTransactionProcessor(
        parts.config, store.queries, store.acknowledgements, parts.transactions, store_host, parts.clock
    )
    table.add(RequestCode.END_TRANSACTION, end.process, EndTransactionRequestHeader, Audience.CLIENT)
    recall = RecallMessageProcessor(
        parts.config,
        puts,
        parts.topic_configs,
        parts.handle_schedule_message,
        parts.clock,
        parts.stats,
    )
    table.add(RequestCode.RECALL_MESSAGE, recall.process, RecallMessageRequestHeader, Audience.CLIENT)


def _pulls(parts: BrokerParts) -> PullMessageProcessor:
    """Return the processor of pulls, within the reads of a slave if this is one."""
    subscriptions = PullSubscriptions(parts.config, parts.consumers, parts.subscription_groups, parts.consumer_filters)
    accounts = PullAccounts(
        parts.subscription_groups, parts.consumers, parts.consumer_offsets, parts.stats, parts.send_backs
    )
    needed = parts.config, parts.topic_configs, subscriptions, parts.store.fetcher, accounts, parts.hold_service
    return PullMessageProcessor(*needed) if parts.slave is None else SlaveReads(parts.slave, *needed)


def _add_clients(table: MethodTable, parts: BrokerParts) -> None:
    heart_beat = HeartBeatProcessor(
        parts.topic_configs,
        parts.subscription_groups,
        parts.consumers,
        parts.producers,
        parts.consumer_filters,
        parts.clock,
        HeartbeatLimit(parts.config, parts.consumers, parts.producers, parts.subscription_groups),
    )
    table.add(RequestCode.HEART_BEAT, heart_beat.process, audience=Audience.CLIENT)
    unregister = UnregisterClientProcessor(parts.consumers, parts.producers)
    table.add(RequestCode.UNREGISTER_CLIENT, unregister.process, UnregisterClientRequestHeader, Audience.CLIENT)
    table.add(
        RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfigProcessor(parts.config).process, audience=Audience.CLIENT
    )
    consumer_list = GetConsumerListByGroupProcessor(parts.consumers)
    table.add(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        consumer_list.process,
        GetConsumerListByGroupRequestHeader,
        Audience.CLIENT,
    )
    query = QueryConsumerOffsetProcessor(parts.consumer_offsets, parts.store.fetcher)
    table.add(RequestCode.QUERY_CONSUMER_OFFSET, query.process, QueryConsumerOffsetRequestHeader, Audience.CLIENT)
    update = UpdateConsumerOffsetProcessor(
        parts.consumer_offsets,
        parts.subscription_groups,
        parts.topic_configs,
        parts.consumers,
        parts.store.queues,
        parts.offset_reset,
    )
    table.add(RequestCode.UPDATE_CONSUMER_OFFSET, update.process, UpdateConsumerOffsetRequestHeader, Audience.CLIENT)
    lock = LockBatchMqProcessor(
        parts.config, parts.locks, parts.topic_configs, parts.consumers, parts.subscription_groups
    )
    table.add(RequestCode.LOCK_BATCH_MQ, lock.process, audience=Audience.CLIENT)
    table.add(
        RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqProcessor(parts.config, parts.locks).process, audience=Audience.CLIENT
    )
