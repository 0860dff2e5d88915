"""Parts of a broker that the tables pass to processors; each processor gets the few that it needs."""

import asyncio
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
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoResponseHeader
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.fields import ConfigModel
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

    ``has_master`` returns true while the master of this slave answers. ``acting_as`` returns the id by which consumers
    reach this slave while it acts as master, else ``None``.
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
    has_master: Callable[[], bool]
    acting_as: Callable[[], int | None]
    admin: AdminParts
