"""The parts of a broker, started and stopped together (org.apache.rocketmq.broker.BrokerController).

``mqbroker`` runs one alone, ``mqdev`` one beside a name server in the same process.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from rocketbroker.app.access_control import AccessControl, ha_access, own_binder, own_signer
from rocketbroker.app.broker_ports import grpc_port, metrics_port
from rocketbroker.app.broker_replication import (
    ANY_ROLE,
    MASTER,
    SLAVE,
    ActingParts,
    BrokerReplication,
    BrokerRole,
    HAPort,
    RoleParts,
    bind_ha,
)
from rocketbroker.app.logging_setup import set_level
from rocketbroker.app.server_process import limits_of
from rocketbroker.app.stats_log import StatsLog
from rocketbroker.app.warm_up import import_modules
from rocketbroker.auth.audit_log import AuditLog
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.broker.broker_protection import BrokerProtection
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerIdsChangeListener, ConsumerManager
from rocketbroker.broker.client.producer_manager import ClientHousekeepingService, ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.message_meters import MessageMeters
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetFlushService, OffsetRecovery
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.offset.offset_reset import OffsetReset, unconsumed_messages
from rocketbroker.broker.persist.config_manager import ConfigPersistService, MissingTableReport
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.broker.pop.pop_queues import PopQueues
from rocketbroker.broker.pop.pop_recovery import PopRecovery
from rocketbroker.broker.pop.pop_revive_service import PopReviveService
from rocketbroker.broker.registration.broker_outer_api import OuterNetwork
from rocketbroker.broker.registration.escape_bridge import EscapeBridge
from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.acting_master import Progress
from rocketbroker.broker.slave.delivery_lease import DeliveryLease, MasterDeliveries
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.broker.slave.master_progress import MasterProgressGate
from rocketbroker.broker.slave.slave_synchronize import FollowedTables, SlaveSynchronize, TimerMetrics
from rocketbroker.broker.timer.timer_message_store import TimerBypass, TimerFollower, TimerMessageStore
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.half_messages import HalfMessageEscape, HalfQueueRecovery
from rocketbroker.broker.transaction.transactional_message_check_service import (
    TransactionalMessageCheckListener,
    TransactionalMessageCheckService,
)
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.codec.message.message_id import host_bytes, join_address
from rocketbroker.codec.message.pop_info import revive_topic
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.hosts import host_address
from rocketbroker.common.config.load import VIP_PORT_DISTANCE, BrokerSettings
from rocketbroker.common.lifecycle import PartList, TaskOwner, stop_all, uninterrupted
from rocketbroker.ha.ha_service import GroupTransferService
from rocketbroker.metrics.health import BrokerHealth, not_ready
from rocketbroker.processor.broker_table import AdminParts, BrokerParts, PopParts, broker_routes
from rocketbroker.processor.heart_beat import check_length
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.clean.clean_files_service import CleanFilesService, QueueRange
from rocketbroker.store.clean.disk_watch import MeasureDisk, measure_disk
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.endpoint import EndpointHooks
from rocketbroker.transport.remoting_server import RemotingServer, bind_sockets, close_sockets, port_of
from rocketbroker.transport.tls_transport import RemotingTls

if TYPE_CHECKING:
    from rocketbroker.proxy.grpc_server import GrpcServer

log = logging.getLogger(__name__)

# Settings that decide what connected peers may send.
_ACCESS_SETTINGS: Final = frozenset({"protectedMode", "adminWhiteList", "brokerWhiteList"})


class BrokerController:
    """The parts of a broker; ``bind`` returns one that can be started.

    Args:
        settings: all settings, with the port that was bound.
        sockets: the bound sockets; records, answers and registrations carry their port.
        ha_sockets: the bound sockets of the HA port; none for a slave.
        clock: source of the time; the system's by default.
        measure_disk: measures the disks of the store.
        interpose: returns the route to serve for each route; None serves them as they are.
        when_warm: called when all modules of the first messages are imported.

    ``routes`` maps request codes to handlers.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        sockets: Sequence[socket.socket] = (),
        ha_sockets: Sequence[socket.socket] = (),
        clock: Clock | None = None,
        *,
        measure_disk: MeasureDisk = measure_disk,
        interpose: Callable[[Route], Route] | None = None,
        when_warm: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._sockets, self._ha_sockets = sockets, ha_sockets
        self._measure_disk, self._when_warm = measure_disk, when_warm
        self._clock = clock = clock or SystemClock()
        config, folder = settings.broker, settings.store.config_dir
        self._store_host = host_bytes(host_address(config.broker_ip1), config.listen_port)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="AdminBrokerThread")
        self._tasks, self._lease, self.parts = TaskOwner("BrokerController"), DeliveryLease(config), RoleParts()
        self._meters = None if config.metrics_exporter_type == "DISABLE" else MessageMeters()
        self.stats = BrokerStatsManager(clock, config.broker_cluster_name, self._meters)
        # Tables
        self._persist = ConfigPersistService()
        submit = self._persist.submit
        self.topic_configs = TopicConfigManager(folder / "topics.json", config, clock, submit)
        self.subscription_groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config, clock, submit)
        self.consumer_offsets = ConsumerOffsetManager(folder / "consumerOffset.json", clock, submit, config)
        self.consumer_filters = ConsumerFilterManager(folder / "consumerFilter.json", config, clock, submit)
        self._request_modes = MessageRequestModeManager(folder / "messageRequestMode.json", config, submit)
        self._timer_metrics = TimerMetrics(folder / "timermetrics", submit)
        self._audit = AuditLog(f"{config.broker_name}_{config.broker_id}", clock)
        # Name servers and other brokers
        self._tls = RemotingTls(settings.transport)
        self.access = AccessControl.of_broker(settings, clock, self._audit)
        signer = own_signer(settings.transport)
        self._network = network = OuterNetwork(
            config,
            settings.store,
            self.topic_configs,
            self._tls,
            None if signer is None else signer.sign,
            own_binder(settings.transport),
        )
        self.outer_api, self.master_address = network.outer_api, network.master_address
        self._escape = EscapeBridge(config, network.client, network.routes.fetch)
        # Clients
        expires_s = config.channel_expired_timeout / 1000
        self.producers = ProducerManager(clock, expires_s)
        self._ids_change_listener, self._locks = ConsumerIdsChangeListener(config), RebalanceLockManager(clock, config)
        self.consumers = ConsumerManager(
            clock, expires_s, self._ids_change_listener.group_changed, self.consumer_filters.unregister
        )
        self._housekeeping = ClientHousekeepingService(self.producers, self.consumers, self._locks)
        self.hold_service, self._send_backs = PullRequestHoldService(config), SendBackAllowance(config, clock)
        self.polling, self._notifications = PopLongPollingService(config), PopLongPollingService(config)
        self._fast_failure = BrokerFastFailure(config, settings.transport.slow_request_ms / 1000)
        # Messages
        transfers = GroupTransferService(settings.store)
        self.store = MessageStore(
            settings.store,
            self._store_host,
            self.hold_service,
            clock,
            topics=self.topic_configs.topics,
            replicated=transfers.acknowledge if settings.store.broker_role == "SYNC_MASTER" else None,
        )
        if config.enable_slave_acting_master and self.store.acknowledgements.on_slaves:
            self.store.acknowledgements.shortage = transfers.shortage
        self.store.dispatcher.also_notify(self.polling, self._notifications)
        self._bypass = TimerBypass(revive_topic(config.broker_cluster_name))
        self.schedule, self.timer = self._make_deliveries()
        self._tables = (self.topic_configs, self.subscription_groups, self.consumer_offsets, self.schedule)
        self._orders = ConsumerOrderInfoManager(
            folder / "consumerOrderInfo.json", clock, self._read_queue_nums, self.subscription_groups.contains, submit
        )
        self._check_points = self._make_check_points()
        self.transactions = TransactionalMessageService(
            self.store.appender,
            self.store.flusher,
            self.consumer_offsets,
            config,
            self._store_host,
            clock,
            self.stats,
        )
        self._transaction_checks, self.cleaning = self._make_transaction_checks(), self._make_cleaning()
        # Replication
        ha_port = HAPort(ha_sockets, ha_access(settings, self.access))
        self.replication = BrokerReplication(settings, ha_port, self.store, transfers, network, self.parts, clock)
        self.acting = ActingParts(
            config,
            network,
            self._executor,
            self.replication.client,
            self._make_acting_services(),
            Progress(self.consumer_offsets, self.schedule, self.timer, self.store.queues.max_offset_in_queue),
            clock,
        )
        self._synchronize = self._make_slave_synchronize()
        self.health = BrokerHealth(
            config,
            settings.store,
            self.store.refusals,
            self.outer_api,
            self.replication.service,
            self.replication.client,
            lambda: self.parts.role is not None,
        )
        # Requests
        self.routes = broker_routes(self._make_broker_parts())
        if interpose is not None:
            self.routes = {code: interpose(route) for code, route in self.routes.items()}
        self._server = self._make_server()
        guard = None if self.access is None else self.access.guard
        self._grpc = grpc_port(self, settings, self.polling, clock, guard)
        self._metrics = metrics_port(
            self, settings, self._check_points, self._fast_failure, self._server, measure_disk, clock
        )
        # Second step of the parts that call back
        self._connect_slave_parts()
        self._arrange_parts()

    @property
    def _is_slave(self) -> bool:
        return BrokerRole(self._settings.store.broker_role) in SLAVE

    def _connect_slave_parts(self) -> None:
        """Connect the parts of a slave that call each other back, now that all exist."""
        self.replication.client.on_change = self._synchronize.look_again
        self.acting.state.on_answers, self.acting.state.on_silence = self._lease.extend, self._lease.holds
        self.master_address.on_change(self._master_changed)

    def _arrange_parts(self) -> None:
        """Arrange all parts that start and stop, in the order of their start.

        They stop in reverse order: offsets are flushed when nothing changes them any more, then written.
        """
        config, store = self._settings.broker, self.store
        delayed, follow_progress = PartList(self.schedule, self.timer), self.transactions.follow_progress
        self.parts.arrange(
            # First, so that /readyz says what a start waits for.
            (ANY_ROLE, self._metrics),
            (ANY_ROLE, store),
            (SLAVE, self.replication.replica_log),
            (ANY_ROLE, self._persist),
            (ANY_ROLE, self.access or PartList()),
            (ANY_ROLE, self._audit),
            (ANY_ROLE, MissingTableReport(self._tables, store.commit_log)),
            (ANY_ROLE, OffsetRecovery(self.consumer_offsets, store.queues, self._persist.drain)),
            (ANY_ROLE, OffsetFlushService(self.consumer_offsets, self.schedule, config, self._settings.store)),
            (ANY_ROLE, self.cleaning),
            # Before all that stores messages, so that slaves get the last of them at a stop.
            (MASTER, self.replication.service),
            (MASTER, MasterDeliveries(self._lease, self.acting.pre_online, delayed, follow_progress)),
            (MASTER, self._transaction_checks),
            (MASTER, self._make_pop_services()),
            (SLAVE, TimerFollower(self.timer, self._settings.store.clean_resource_interval / 1000)),
            (ANY_ROLE, self.hold_service),
            (ANY_ROLE, self.stats),
            (ANY_ROLE, StatsLog(self.stats, self._fast_failure, store)),
            (ANY_ROLE, self._housekeeping),
            (ANY_ROLE, self._ids_change_listener),
            (
                MASTER,
                BrokerProtection(
                    config,
                    self.consumers,
                    self.consumer_offsets,
                    self.subscription_groups,
                    store.queues,
                    lambda: store.commit_log.max_offset,
                    self._read_queue_nums,
                ),
            ),
            # Before the servers: it stops after the last request was answered.
            (ANY_ROLE, self._metrics if isinstance(self._metrics, PartList) else self._metrics.reading),
            (ANY_ROLE, self._server),
            (MASTER, self._grpc),
            (ANY_ROLE, self.outer_api),
            (ANY_ROLE, self.acting.heartbeat),
            (SLAVE, self.acting.state),
            (SLAVE, self._synchronize),
            *self.replication.parts,
        )

    def _make_deliveries(self) -> tuple[ScheduleMessageService, TimerMessageStore]:
        """Return the services that deliver delayed messages."""
        store, store_config = self.store, self._settings.store
        copies = CopyDelivery(
            store.appender,
            store.entry_reader,
            self.stats,
            self._store_host,
            put=self._escape.put if self._is_slave else None,
            may_deliver=self._lease.holds,
        )
        schedule = ScheduleMessageService(
            store_config.config_dir / "delayOffset.json",
            copies,
            store.queues,
            store.flusher,
            delay_levels=parse_delay_levels(store_config.message_delay_level),
            clock=self._clock,
            on_persist=self._persist.submit,
        )
        progress = TimerProgress(store_config.config_dir / "timerProgress.json", store.flusher, self._persist.submit)
        timer = TimerMessageStore(
            store_config,
            copies,
            store.queues,
            store.flusher,
            progress,
            self._persist.drain,
            bypass=self._bypass,
            clock=self._clock,
        )
        return schedule, timer

    def _read_queue_nums(self, topic: str) -> int | None:
        config = self.topic_configs.select(topic)
        return None if config is None else config.read_queue_nums

    def _make_check_points(self) -> PopCheckPoints:
        store, config = self.store, self._settings.broker
        return PopCheckPoints(
            PopQueues(self.consumer_offsets, store.flusher),
            store.appender,
            store.queues,
            store.flusher,
            self.consumer_offsets,
            self._orders,
            self._clock,
            bypass=self._bypass,
            precision_ms=lambda: self.timer.precision_ms,
            broker_name=config.broker_name,
            store_host=self._store_host,
        )

    def _make_pop_services(self) -> PartList:
        """Return the services of POP: the recovery of open check points, and the return of messages."""
        store, settings = self.store, self._settings
        recovery = PopRecovery(
            self._check_points,
            store.queues,
            store.entry_reader,
            self.consumer_offsets,
            self._orders,
            store.flusher,
            self._clock,
            settings.store.config_dir / "timercheck",
        )
        revive = PopReviveService(
            settings.broker,
            self._check_points,
            store.queues,
            store.entry_reader,
            store.appender,
            self.topic_configs,
            self.subscription_groups,
            self.consumer_offsets,
            self.stats,
            self._clock,
            self._store_host,
        )
        return PartList(recovery, revive, self.polling, self._notifications)

    def _make_half_recovery(self) -> HalfQueueRecovery:
        store = self.store
        return HalfQueueRecovery(
            store.commit_log, store.queues, store.queries, self.consumer_offsets, self.transactions
        )

    def _make_acting_services(self) -> PartList:
        """Return the services of an acting master: none without remote escape, so that messages wait for the master."""
        store, config = self.store, self._settings.broker
        if not config.enable_remote_escape:
            return PartList()
        halves = HalfMessageEscape(
            self.transactions,
            self._make_half_recovery().run,
            store.queues,
            store.queries,
            self.consumer_offsets,
            self._escape.put,
            config,
            self._store_host,
            self._lease.holds,
        )
        return PartList(self.schedule, self.timer, halves)

    def _make_transaction_checks(self) -> TransactionalMessageCheckService:
        store, config = self.store, self._settings.broker
        return TransactionalMessageCheckService(
            self.transactions,
            TransactionalMessageCheckListener(self.producers, self.topic_configs, config.broker_name, self._store_host),
            self._make_half_recovery().run,
            store.appender,
            store.queues,
            store.queries,
            store.acknowledgements,
            config=config,
            store_config=self._settings.store,
            store_host=self._store_host,
            clock=self._clock,
            may_check=self._lease.holds,
        )

    def _make_slave_synchronize(self) -> SlaveSynchronize:
        store, replica = self.store, self.replication.replica_log
        client = MasterClient(self._network.client, self._executor, self.master_address.address)
        return SlaveSynchronize(
            self.master_address,
            client,
            FollowedTables(*self._tables, self.timer, self._request_modes, self._timer_metrics),
            MasterProgressGate(client, store.commit_log, lambda: replica.last_record, store.flusher),
            self._clock,
            self.outer_api.register_all,
            lambda: store.queues.topics,
            lambda: self.replication.client.other_log,
            lambda: self.acting.state.is_acting,
            None if self.access is None else partial(self.access.follow, client.users_and_policies),
        )

    def _make_cleaning(self) -> CleanFilesService:
        return CleanFilesService(
            self.store,
            self._clock,
            self._unconsumed,
            self._measure_disk,
            pending=(
                self.schedule.first_pending_offset,
                self.timer.first_pending_offset,
                self._check_points.first_pending_offset,
            ),
        )

    def _unconsumed(self, ranges: Sequence[QueueRange]) -> list[str]:
        """Return a text for each group, queue and delay with unconsumed messages in given ranges."""
        return unconsumed_messages(
            ranges, self.consumer_offsets.table, self.schedule.offset_table, self.timer.first_pending_queue_offset()
        )

    def _make_broker_parts(self) -> BrokerParts:
        settings, config, clock = self._settings, self._settings.broker, self._clock
        return BrokerParts(
            config,
            clock,
            self.store,
            self.topic_configs,
            self.subscription_groups,
            self.consumer_offsets,
            OffsetReset(config, self.consumer_offsets, self.hold_service, self.polling, self._persist.drain),
            self.consumer_filters,
            self._request_modes,
            self._network.routes,
            self.consumers,
            self.producers,
            self._locks,
            self.stats,
            self.schedule,
            self.transactions,
            self.timer,
            HandleScheduleMessage(
                settings.store, clock, self.schedule.max_delay_level, lambda: self.timer.precision_ms
            ),
            self.hold_service,
            self._send_backs,
            self._fast_failure,
            PopParts(self._check_points, self._orders, self.polling, self._notifications),
            self.acting if self._is_slave else None,
            AdminParts(
                settings.models,
                settings.persist_path,
                self._executor,
                self._register_again,
                self._settings_changed,
                self._is_active,
                self.cleaning,
                self._timer_metrics,
                self.replication.runtime_info,
                self.replication.problem,
                lambda: not_ready(self.health),
                self.acting.state.sync_soon,
                self.acting.own_ha_info,
                self.acting.hand_over,
                self._measure_disk,
                self._tls.runtime_info,
                self._audit,
                None if self.access is None else self.access.store,
                None if self.access is None else self.access.copy_seal,
            ),
        )

    def _make_server(self) -> RemotingServer:
        transport = self._settings.transport
        mode = ProtectedMode(transport)
        lengths = {int(RequestCode.HEART_BEAT): partial(check_length, self._settings.broker)}
        if self.access is not None:
            self.access.store.on_change(self._check_grants)
        server = RemotingServer(
            self.routes if self.access is None else self.access.guard.routes(self.routes, lengths),
            host=transport.bind_address,
            port=transport.listen_port,
            limits=limits_of(transport),
            hooks=EndpointHooks(
                self.end_batch,
                self.connection_closed,
                admit=mode,
                is_trusted=mode.trusts,
                on_refused=self._audit.refused_request,
                parts_of=self._fast_failure.parts_of,
            ),
            tls=self._tls.server,
            send_away_s=lambda: transport.send_away_s,
        )
        if self._sockets:
            server.listen_on(self._sockets)
        return server

    @property
    def metrics_port(self) -> int:
        """Port of metrics and health, 0 without one."""
        return 0 if isinstance(self._metrics, PartList) else self._metrics.port

    @property
    def grpc_figures(self) -> "GrpcServer | None":
        """Figures of the port of the 5.x SDKs, ``None`` without one."""
        return None if isinstance(self._grpc, PartList) else self._grpc.figures

    @property
    def grpc_port(self) -> int:
        """Port of the 5.x SDKs, 0 without one."""
        return 0 if isinstance(self._grpc, PartList) else self._grpc.port

    @classmethod
    def bind(
        cls,
        settings: BrokerSettings,
        clock: Clock | None = None,
        *,
        measure_disk: MeasureDisk = measure_disk,
        interpose: Callable[[Route], Route] | None = None,
        when_warm: Callable[[], None] | None = None,
    ) -> Self:
        """Bind the port, or a free one for ``listenPort=0``, the VIP port and the HA port; return a broker for them.

        The other arguments are those of the class.

        Raises:
            ConfigError: A port is in use.
        """
        transport = settings.transport
        sockets = bind_sockets(transport.bind_address, transport.listen_port, VIP_PORT_DISTANCE)
        ha_sockets: Sequence[socket.socket] = ()
        try:
            bound = settings.at_port(port_of(sockets[0]))
            if ha_sockets := bind_ha(bound, any_port=not transport.listen_port):
                bound = bound.at_ha_port(port_of(ha_sockets[0]))
            return cls(
                bound,
                sockets,
                ha_sockets,
                clock,
                measure_disk=measure_disk,
                interpose=interpose,
                when_warm=when_warm,
            )
        except BaseException:
            close_sockets([*sockets, *ha_sockets])
            raise

    @property
    def port(self) -> int:
        """Port of the broker."""
        return self._server.port

    @property
    def address(self) -> str:
        """``ip:port`` for clients."""
        return join_address(self._settings.broker.broker_ip1, self._settings.broker.listen_port)

    async def start(self) -> None:
        """Load the tables, open the store, listen, and register at the name servers; stop everything on an error.

        Raises:
            ConfigError: A table cannot be read, or another process took a port after it was bound.
            StoreError: The store is in use by another broker, or cannot be opened.
        """
        try:
            # Locked before the tables are read, since damaged ones are set aside. The store opens after them: a start
            # that fails at a table leaves it unclean. One that ends later may leave it clean, once all is on disk.
            self.store.lock.acquire()
            tables = *self._tables, self._orders, self.consumer_filters, self._request_modes, self.timer.progress
            for table in tables:
                table.load()
            if self.access is not None:
                self.access.load()
            if self._is_slave:
                self._timer_metrics.load()
            else:
                self.consumer_offsets.forget_slave_commits()
            await self.parts.take_role(BrokerRole(self._settings.store.broker_role))
        except BaseException:
            await self.stop()
            raise
        self._tasks.start(self._warm_up(), "warm up")
        self._tls.watch(self._tasks)

    async def _warm_up(self) -> None:
        """Import the modules of the first message off the loop."""
        await import_modules(with_filters=self._settings.broker.enable_property_filter)
        if self._when_warm is not None:
            self._when_warm()

    async def flush(self) -> None:
        """Write all messages and offsets to disk now."""
        await self.store.flusher.sync()
        self.consumer_offsets.flush()
        self.schedule.flush()
        self.timer.progress.flush()
        await self._persist.drain()

    async def stop(self) -> None:
        """Unregister, stop listening, and write everything to disk, also if the caller is cancelled."""
        await uninterrupted(
            stop_all(
                self._tasks.stop,
                self.parts.stop,
                self.store.lock.release,
                None if self.access is None else self.access.release,
                lambda: close_sockets([*self._sockets, *self._ha_sockets]),
                self._network.client.stop,
                self._executor.shutdown,
            )
        )

    def _is_active(self) -> bool:
        return self.parts.is_master or self.acting.state.is_acting

    def _master_changed(self, master: Master) -> None:
        if master.address:
            self.hold_service.master_online()

    def _register_again(self) -> list[asyncio.Future[None]]:
        """Register a changed address or permission, which name servers accept only with a new data version."""
        self.topic_configs.changed()
        return self.outer_api.register_all()

    def _settings_changed(self, names: Collection[str]) -> None:
        """Let changed settings act that are not read at each use."""
        if not _ACCESS_SETTINGS.isdisjoint(names):
            self._server.readmit()
        if "logLevel" in names:
            set_level(self._settings.broker.log_level or None)

    def end_batch(self) -> None:
        """Dispatch the messages that a batch of requests stored."""
        self.store.appender.dispatch()

    def connection_closed(self, connection: Connection) -> None:
        """Forget the client of a closed connection."""
        self._housekeeping.on_close(connection)
        self.hold_service.on_close(connection)
        self.polling.on_close(connection)
        self._notifications.on_close(connection)
        self._send_backs.on_close(connection)
        if self.access is not None:
            self.access.guard.members.on_close(connection)

    def _check_grants(self, _rules: AccessRules) -> None:
        """Answer held requests whose users may not send them any more."""
        for service in (self.hold_service, self.polling, self._notifications):
            service.check_grants()
