"""The broker as one part: started once, stopped once (org.apache.rocketmq.broker.BrokerController).

``mqbroker`` runs one alone, ``mqdev`` beside a name server in the same process.
"""

import asyncio
import gc
import importlib
import logging
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from rocketbroker.app.transport_limits import limits_of
from rocketbroker.broker.client.client_housekeeping_service import ClientHousekeepingService
from rocketbroker.broker.client.consumer_ids_change_listener import ConsumerIdsChangeListener
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.filter.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_flush_service import OffsetFlushService
from rocketbroker.broker.offset.offset_recovery import OffsetRecovery
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.offset.unconsumed_messages import unconsumed_messages
from rocketbroker.broker.out.broker_outer_api import BrokerOuterApi
from rocketbroker.broker.out.broker_registration import BrokerRegistration
from rocketbroker.broker.persist.config_manager import ConfigPersistService
from rocketbroker.broker.persist.missing_table_report import MissingTableReport
from rocketbroker.broker.schedule.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.timer.handle_schedule_message import HandleScheduleMessage
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.half_queue_recovery import HalfQueueRecovery
from rocketbroker.broker.transaction.transactional_message_check_listener import TransactionalMessageCheckListener
from rocketbroker.broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from rocketbroker.broker.transaction.transactional_message_service import TransactionalMessageService
from rocketbroker.codec.message.delay_levels import parse_delay_levels
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.lifecycle import PartList, TaskOwner
from rocketbroker.processor.support.broker_parts import AdminParts, BrokerParts
from rocketbroker.processor.table import broker_routes
from rocketbroker.store.clean.clean_files_service import CleanFilesService
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.access import ProtectedMode
from rocketbroker.transport.listening_sockets import bind_sockets, close_sockets, port_of
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.remoting_server import RemotingServer

log = logging.getLogger(__name__)

_VIP_PORT_DISTANCE = 2
_WARM_UP_DELAY_S = 0.2


class BrokerController:
    """Wires and runs a broker; ``bind`` makes one that can be started.

    Args:
        settings: what ``mqbroker`` was told, with the port that was bound.
        sockets: what it listens on, bound already: records, answers and registrations carry the port.
        clock: the time that it lives by; the system's when none is given.

    ``routes`` has the requests that it answers by their code.
    """

    def __init__(
        self, settings: BrokerSettings, sockets: Sequence[socket.socket] = (), clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._sockets = sockets
        config, store_config = settings.broker, settings.store
        clock = clock or SystemClock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="AdminBrokerThread")
        self._active = False
        folder = store_config.config_dir
        store_host = host_bytes(config.broker_ip1, config.listen_port)
        self._persist = ConfigPersistService()
        submit = self._persist.submit
        self.stats = BrokerStatsManager(clock, config.broker_cluster_name)
        self.topic_configs = TopicConfigManager(folder / "topics.json", config, clock, submit)
        self.subscription_groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config, clock, submit)
        self.consumer_offsets = ConsumerOffsetManager(folder / "consumerOffset.json", clock, submit, config)
        self.producers = ProducerManager(clock, config.channel_expired_timeout / 1000)
        self.consumer_filters = ConsumerFilterManager(folder / "consumerFilter.json", config, clock, submit)
        self._ids_change_listener = ConsumerIdsChangeListener()
        self.consumers = ConsumerManager(
            clock,
            config.channel_expired_timeout / 1000,
            self._ids_change_listener.group_changed,
            self.consumer_filters.unregister,
        )
        self._housekeeping = ClientHousekeepingService(self.producers, self.consumers)
        self.hold_service = PullRequestHoldService(config)
        self._send_backs = SendBackAllowance(config, clock)
        topics = self.topic_configs.topics
        store = self.store = MessageStore(store_config, store_host, self.hold_service, clock, topics=topics)
        self.schedule = ScheduleMessageService(
            folder / "delayOffset.json",
            store.appender,
            store.queues,
            store.entry_reader,
            store.flusher,
            store_host=store_host,
            delay_levels=parse_delay_levels(store_config.message_delay_level),
            clock=clock,
            stats=self.stats,
            on_persist=submit,
        )
        self.transactions = TransactionalMessageService(
            store.appender, store.flusher, self.consumer_offsets, config, store_host, clock, self.stats
        )
        transaction_checks = TransactionalMessageCheckService(
            self.transactions,
            TransactionalMessageCheckListener(self.producers, self.topic_configs, config.broker_name, store_host),
            HalfQueueRecovery(
                store.commit_log, store.queues, store.queries, store.lock, self.consumer_offsets, self.transactions
            ).run,
            store.appender,
            store.queues,
            store.queries,
            store.lock,
            store.acknowledgements,
            config=config,
            store_config=store_config,
            store_host=store_host,
            clock=clock,
        )
        self.timer = TimerMessageStore(
            store_config,
            store.appender,
            store.queues,
            store.entry_reader,
            store.flusher,
            TimerProgress(folder / "timerProgress.json", store.flusher, submit),
            self._persist.drain,
            store_host=store_host,
            clock=clock,
            stats=self.stats,
        )
        handle_schedule_message = HandleScheduleMessage(
            store_config, clock, self.schedule.max_delay_level, lambda: self.timer.precision_ms
        )
        self.cleaning = CleanFilesService(
            self.store,
            clock,
            lambda ranges: unconsumed_messages(
                ranges,
                self.consumer_offsets.table,
                self.schedule.offset_table,
                self.timer.first_pending_queue_offset(),
            ),
            pending=(self.schedule.first_pending_offset, self.timer.first_pending_offset),
        )
        parts = BrokerParts(
            config,
            clock,
            self.store,
            self.topic_configs,
            self.subscription_groups,
            self.consumer_offsets,
            OffsetReset(config, self.consumer_offsets, self.hold_service, self._persist.drain),
            self.consumer_filters,
            self.consumers,
            self.producers,
            RebalanceLockManager(clock),
            self.stats,
            self.schedule,
            self.transactions,
            self.timer,
            handle_schedule_message,
            self.hold_service,
            self._send_backs,
            AdminParts(
                settings.models,
                settings.persist_path,
                self._executor,
                self._register_anew,
                self._readmit,
                self._is_active,
                self.cleaning,
            ),
        )
        transport = settings.transport
        self.routes = broker_routes(parts)
        self._server = RemotingServer(
            self.routes,
            host=transport.bind_address,
            port=transport.listen_port,
            limits=limits_of(transport),
            on_batch_end=store.appender.dispatch,
            on_close=self._connection_closed,
            admit=ProtectedMode(transport),
        )
        if sockets:
            self._server.listen_on(sockets)
        self._client = RemotingClient()
        self.outer_api = BrokerOuterApi(
            config, self._client, self.topic_configs, BrokerRegistration(config, store_config, self.topic_configs)
        )
        self._tasks = TaskOwner("BrokerController")
        self._tables = (self.topic_configs, self.subscription_groups, self.consumer_offsets, self.schedule)
        # Stopped from the last to the first: offsets are flushed when nothing changes them any more, then written.
        self._parts = PartList(
            self.store,
            self._persist,
            MissingTableReport(self._tables, store.commit_log),
            OffsetRecovery(self.consumer_offsets, store.queues, store.lock, self._persist.drain),
            OffsetFlushService(self.consumer_offsets, self.schedule, config, store_config),
            self.cleaning,
            self.schedule,
            transaction_checks,
            self.timer,
            self.hold_service,
            self.stats,
            self._housekeeping,
            self._ids_change_listener,
            self._server,
            self.outer_api,
        )

    @classmethod
    def bind(cls, settings: BrokerSettings, clock: Clock | None = None) -> Self:
        """Take the port, or a free one for ``listenPort=0``, and the VIP port below it; make a broker for them.

        Raises:
            ConfigError: a port is in use.
        """
        transport = settings.transport
        sockets = bind_sockets(transport.bind_address, transport.listen_port, _VIP_PORT_DISTANCE)
        try:
            return cls(settings.at_port(port_of(sockets[0])), sockets, clock)
        except BaseException:
            close_sockets(sockets)
            raise

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def address(self) -> str:
        """``ip:port`` that clients are told."""
        return f"{self._settings.broker.broker_ip1}:{self._settings.broker.listen_port}"

    async def start(self) -> None:
        """Load the tables, open the store, listen, register at the name servers; an error stops what was started.

        Raises:
            ConfigError: a table cannot be read, or another process listens on a port since it was bound.
            StoreError: the store is in use by another broker, or cannot be opened.
        """
        try:
            # Before the tables are read, of which damaged ones are set aside. The store is opened after them: a start
            # that a table ends must leave it unclean, as consumer offsets are set back after an unclean stop only.
            self.store.lock.acquire()
            for table in (*self._tables, self.consumer_filters, self.timer.progress):
                table.load()
            await self._parts.start()
        except BaseException:
            await self.stop()
            raise
        self._active = True
        self._tasks.start(self._warm_up(), "warm up")

    async def _warm_up(self) -> None:
        """Import what the first message will need, off the loop, and keep the collector from what was loaded."""
        await asyncio.sleep(_WARM_UP_DELAY_S)
        loop = asyncio.get_running_loop()
        modules = ["rocketbroker.store.index.index_file", "rocketbroker.codec.message.java_hash_many"]
        if self._settings.broker.enable_property_filter:
            modules += ["rocketbroker.codec.filter.selector_parser", "rocketbroker.codec.message.property_slices"]
        for module in modules:
            await loop.run_in_executor(None, importlib.import_module, module)
        # Nothing on the hot path makes cycles, so that collections find nothing; they only cost.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)

    async def stop(self) -> None:
        """Unregister, stop listening, write all to disk."""
        self._active = False
        await self._tasks.stop()
        await self._parts.stop()
        self.store.lock.release()
        close_sockets(self._sockets)
        await self._client.stop()
        self._executor.shutdown()

    def _is_active(self) -> bool:
        return self._active

    def _register_anew(self) -> list[asyncio.Future[None]]:
        """Tell the name servers of a changed address or permission, which they take over with a new version only."""
        self.topic_configs.changed()
        return self.outer_api.register_all()

    def _readmit(self) -> None:
        self._server.readmit()

    def _connection_closed(self, connection: Connection) -> None:
        self._housekeeping.on_close(connection)
        self.hold_service.on_close(connection)
        self._send_backs.on_close(connection)
