"""Request codes of the broker: each family with the parts that it needs (BrokerController.registerProcessor)."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.audit_log import AuditLog
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.registration.topic_route_info_manager import TopicRouteInfoManager
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.slave_synchronize import TimerMetrics
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.codec.message.message_id import UniqueIds
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.admin import (
    ExchangeHAInfoResponseHeader,
)
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.ack_message import AckMessageRequests
from rocketbroker.processor.admin.auth import AuthRequests
from rocketbroker.processor.admin.changes import broker_changes
from rocketbroker.processor.admin.clients import ClientRequests, ConsumerCalls
from rocketbroker.processor.admin.groups import GroupRequests
from rocketbroker.processor.admin.messages import MessageRequests
from rocketbroker.processor.admin.offsets import OffsetRequests
from rocketbroker.processor.admin.runtime_info import RuntimeInfoRequests
from rocketbroker.processor.admin.settings import SettingsRequests
from rocketbroker.processor.admin.slaves import SlaveRequests
from rocketbroker.processor.admin.statistics import StatisticsRequests
from rocketbroker.processor.admin.topics import TopicRequests
from rocketbroker.processor.client_manage import ClientManageRequests
from rocketbroker.processor.consumer_offset import ConsumerOffsetRequests
from rocketbroker.processor.consumer_send_msg_back import ConsumerSendMsgBackProcessor
from rocketbroker.processor.end_transaction import EndTransactionProcessor
from rocketbroker.processor.heart_beat import HeartbeatLimit, HeartBeatProcessor
from rocketbroker.processor.notification import NotificationRequests
from rocketbroker.processor.pop_message import PopMessageProcessor
from rocketbroker.processor.pull_message import PullMessageProcessor
from rocketbroker.processor.query_assignment import QueryAssignmentProcessor
from rocketbroker.processor.query_message import QueryMessageRequests
from rocketbroker.processor.recall_message import RecallMessageProcessor
from rocketbroker.processor.send_message import SendMessageProcessor
from rocketbroker.processor.send_reply_message import SendReplyMessageProcessor
from rocketbroker.processor.slave_reads import SlaveReads, SlaveState
from rocketbroker.processor.support.audited import audit_of
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.long_answers import AnswerEncoder
from rocketbroker.processor.support.pop_checks import PopChecks
from rocketbroker.processor.support.pull_accounts import PullAccounts
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions
from rocketbroker.processor.support.put_answers import MessagePuts
from rocketbroker.processor.support.request_family import routes_of
from rocketbroker.processor.support.topic_target import RetryAndDlq, TopicTargets
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.clean.disk_watch import MeasureDisk
from rocketbroker.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class AdminParts:
    """Parts that only administration needs.

    Attributes:
        models: the settings, as GET_BROKER_CONFIG shows them.
        persist_path: file for changed settings.
        executor: threads for file work.
        register: registers the broker again after its address or permission has changed.
        settings_changed: lets changed settings act that are not read at each use.
        is_active: returns true if the services that only a master runs are on.
        cleaning: removal of old files.
        timer_metrics: counts of the master, as a slave keeps them.
        ha_status: returns the state of replication.
        replication_problem: returns the reason why this slave does not follow its master, empty if it does.
        not_ready: returns the reasons why the broker is not ready, empty if it is.
        look_for_members: has this slave ask the name servers for the live brokers of its name.
        own_ha_info: returns the addresses of this master, ``None`` at a slave.
        hand_over: called at a slave with a master that is about to register.
        measure_disk: measures the disk of a folder.
        tls_info: returns the keys of TLS in runtime information.
        audit: takes changes that administrators make.
        access: users and policies, ``None`` without access control.
        copy_seal: seals the secrets in copies of them for slaves.
    """

    models: tuple[ConfigModel, ...]
    persist_path: Path
    executor: Executor
    register: Callable[[], Collection[asyncio.Future[None]]]
    settings_changed: Callable[[Collection[str]], None]
    is_active: Callable[[], bool]
    cleaning: CleanFilesService
    timer_metrics: TimerMetrics
    ha_status: Callable[[], HARuntimeInfo]
    replication_problem: Callable[[], str]
    not_ready: Callable[[], str]
    look_for_members: Callable[[], None]
    own_ha_info: Callable[[], ExchangeHAInfoResponseHeader | None]
    hand_over: Callable[[Master], Awaitable[None]]
    measure_disk: MeasureDisk
    tls_info: Callable[[], dict[str, str]]
    audit: AuditLog
    access: AccessStore | None = None
    copy_seal: SecretSeal | None = None


@dataclass(frozen=True, slots=True)
class PopParts:
    """Parts of POP: open check points, batches of ordered pops, held pops and held notifications."""

    check_points: PopCheckPoints
    orders: ConsumerOrderInfoManager
    polling: PopLongPollingService
    notifications: PopLongPollingService


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
    request_modes: MessageRequestModeManager
    routes: TopicRouteInfoManager
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
    # Shared, as in RocketMQ, where one thread pool serves sends and messages sent back.
    fast_failure: BrokerFastFailure
    pop: PopParts
    slave: SlaveState | None
    admin: AdminParts


def broker_routes(parts: BrokerParts) -> dict[int, Route]:
    """Route all codes that the broker serves."""
    admin = parts.admin
    store, encoder = parts.store, AnswerEncoder(parts.config, admin.executor)
    waiting = WaitingQueries(parts.config)
    fast_failure = parts.fast_failure
    families = [
        *_messages(parts, fast_failure),
        HeartBeatProcessor(
            parts.topic_configs,
            parts.subscription_groups,
            parts.consumers,
            parts.producers,
            parts.consumer_filters,
            parts.clock,
            HeartbeatLimit(parts.config, parts.consumers, parts.producers, parts.subscription_groups),
        ),
        SlaveRequests(
            offsets=parts.consumer_offsets,
            schedule=parts.schedule,
            timer=parts.timer,
            timer_metrics=admin.timer_metrics,
            request_modes=parts.request_modes,
            ha_status=admin.ha_status,
            look_for_members=admin.look_for_members,
            own_ha_info=admin.own_ha_info,
            hand_over=admin.hand_over,
            encoder=encoder,
        ),
        GroupRequests(
            groups=parts.subscription_groups,
            offsets=parts.consumer_offsets,
            stats=parts.stats,
            encoder=encoder,
            topics=parts.topic_configs,
            consumers=parts.consumers,
            config=parts.config,
        ),
        TopicRequests(
            config=parts.config,
            topics=parts.topic_configs,
            offsets=parts.consumer_offsets,
            deletion=store.deletion,
            stats=parts.stats,
            encoder=encoder,
            queues=store.queues,
            cleaning=admin.cleaning,
        ),
        OffsetRequests(
            queues=store.queues,
            topics=parts.topic_configs,
            queries=store.queries,
            waiting=waiting,
            config=parts.config,
            groups=parts.subscription_groups,
            consumers=parts.consumers,
            offsets=parts.consumer_offsets,
            reset=parts.offset_reset,
            encoder=encoder,
        ),
        MessageRequests(
            consumers=parts.consumers,
            consumer_filters=parts.consumer_filters,
            queues=store.queues,
            appender=store.appender,
            queries=store.queries,
            acknowledgements=store.acknowledgements,
            transactions=parts.transactions,
            cleaning=admin.cleaning,
        ),
        ClientRequests(
            consumers=parts.consumers,
            encoder=encoder,
            producers=parts.producers,
            clock=parts.clock,
            calls=ConsumerCalls(parts.config, parts.consumers),
            broker_name=parts.config.broker_name,
            topics=parts.topic_configs,
            groups=parts.subscription_groups,
            queries=store.queries,
        ),
        AuthRequests(admin.access, admin.copy_seal),
        SettingsRequests(
            models=admin.models,
            path=admin.persist_path,
            executor=admin.executor,
            register=admin.register,
            on_change=admin.settings_changed,
            clock=parts.clock,
        ),
        RuntimeInfoRequests(
            config=parts.config,
            store=store,
            stats=parts.stats,
            schedule=parts.schedule,
            consumers=parts.consumers,
            is_active=admin.is_active,
            clock=parts.clock,
            executor=admin.executor,
            timer_info=parts.timer.runtime_info,
            send_info=fast_failure.runtime_info,
            replication_problem=admin.replication_problem,
            not_ready=admin.not_ready,
            measure_disk=admin.measure_disk,
            tls_info=admin.tls_info,
        ),
        StatisticsRequests(
            broker_name=parts.config.broker_name,
            topics=parts.topic_configs,
            queues=store.queues,
            queries=store.queries,
            stats=parts.stats,
            encoder=encoder,
            consumers=parts.consumers,
            config=parts.config,
            groups=parts.subscription_groups,
            offsets=parts.consumer_offsets,
            pops=parts.pop.check_points.queues,
            orders=parts.pop.orders,
            clock=parts.clock,
        ),
        ConsumerOffsetRequests(
            offsets=parts.consumer_offsets,
            fetcher=store.fetcher,
            groups=parts.subscription_groups,
            topics=parts.topic_configs,
            consumers=parts.consumers,
            queues=store.queues,
            reset=parts.offset_reset,
        ),
        QueryMessageRequests(
            config=store.config,
            queries=store.queries,
            waiting=waiting,
        ),
        ClientManageRequests(
            consumers=parts.consumers,
            producers=parts.producers,
            config=parts.config,
            locks=parts.locks,
            topics=parts.topic_configs,
            groups=parts.subscription_groups,
        ),
        QueryAssignmentProcessor(
            config=parts.config,
            modes=parts.request_modes,
            routes=parts.routes,
            consumers=parts.consumers,
            topics=parts.topic_configs,
            groups=parts.subscription_groups,
            encoder=encoder,
        ),
    ]
    changes = broker_changes(
        parts.topic_configs,
        parts.subscription_groups,
        parts.consumer_offsets,
        parts.request_modes,
        admin.models,
        admin.access,
    )
    return routes_of(families, is_slave=parts.slave is not None, around=audit_of(changes, admin.audit))


def _messages(parts: BrokerParts, fast_failure: BrokerFastFailure) -> list[object]:
    """Return the processors that put messages into the store, and the one that reads them."""
    store = parts.store
    store_host = store.commit_log.store_host
    puts = MessagePuts.of(store)
    targets = TopicTargets(parts.config, parts.topic_configs, parts.stats, parts.clock)
    return [
        SendMessageProcessor(
            parts.config,
            puts,
            targets,
            RetryAndDlq(parts.subscription_groups, parts.topic_configs, parts.locks, parts.stats),
            UniqueIds(store_host[:-4], os.getpid(), secrets.randbits(32), parts.clock.time_ms),
            parts.handle_schedule_message,
            fast_failure,
        ),
        SendReplyMessageProcessor(parts.config, puts, targets, parts.producers, parts.clock),
        _pulls(parts),
        *_pops(parts, fast_failure),
        ConsumerSendMsgBackProcessor(
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
        ),
        EndTransactionProcessor(
            parts.config, store.queries, store.acknowledgements, parts.transactions, store_host, parts.clock
        ),
        RecallMessageProcessor(
            parts.config, puts, parts.topic_configs, parts.handle_schedule_message, parts.clock, parts.stats
        ),
    ]


def _pops(parts: BrokerParts, fast_failure: BrokerFastFailure) -> list[object]:
    """Return the processors of POP."""
    pop, store = parts.pop, parts.store
    checks = PopChecks(parts.config, store.config, parts.topic_configs, parts.subscription_groups)
    pops = PopMessageProcessor(
        config=parts.config,
        checks=checks,
        topics=parts.topic_configs,
        consumers=parts.consumers,
        subscriptions=_subscriptions(parts),
        fetcher=store.fetcher,
        check_points=pop.check_points,
        offsets=parts.consumer_offsets,
        orders=pop.orders,
        polling=pop.polling,
        stats=parts.stats,
        send_backs=parts.send_backs,
        clock=parts.clock,
    )
    acks = AckMessageRequests(
        topics=parts.topic_configs,
        fetcher=store.fetcher,
        check_points=pop.check_points,
        offsets=parts.consumer_offsets,
        orders=pop.orders,
        polling=pop.polling,
        acknowledgements=store.acknowledgements,
        fast_failure=fast_failure,
        stats=parts.stats,
        clock=parts.clock,
    )
    notifications = NotificationRequests(
        checks=checks,
        topics=parts.topic_configs,
        subscriptions=_subscriptions(parts),
        fetcher=store.fetcher,
        offsets=parts.consumer_offsets,
        orders=pop.orders,
        notifications=pop.notifications,
        polling=pop.polling,
        clock=parts.clock,
    )
    return [pops, acks, notifications]


def _subscriptions(parts: BrokerParts) -> PullSubscriptions:
    return PullSubscriptions(parts.config, parts.consumers, parts.subscription_groups, parts.consumer_filters)


def _pulls(parts: BrokerParts) -> PullMessageProcessor:
    """Return the processor of pulls, within the reads of a slave if this is one."""
    accounts = PullAccounts(
        parts.subscription_groups, parts.consumers, parts.consumer_offsets, parts.stats, parts.send_backs
    )
    needed = parts.config, parts.topic_configs, _subscriptions(parts), parts.store.fetcher, accounts, parts.hold_service
    return PullMessageProcessor(*needed) if parts.slave is None else SlaveReads(parts.slave, *needed)
