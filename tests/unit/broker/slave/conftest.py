"""A slave's tables, and a master to follow."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.registration.namesrv_link import Master, MasterAddress
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.broker.slave.master_progress import MasterProgressGate
from rocketbroker.broker.slave.slave_synchronize import FollowedTables, SlaveSynchronize, TimerMetrics
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.store.message_store import MessageStore
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.fake_master import CONFIG, FakeMaster
from tests.support.fakes import FakeClock
from tests.support.running import running, stopping
from tests.support.stores import V4_HOST, make_store
from tests.support.timers import Timer


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[FakeMaster]:
    """A running master without entries of its own."""
    (tmp_path / "master").mkdir()
    async with running(FakeMaster(tmp_path / "master")) as found:
        yield found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """The slave's store."""
    async with running(make_store(tmp_path / "store")) as found:
        yield found


@pytest.fixture
async def slave(tmp_path: Path, master: FakeMaster, store: MessageStore) -> AsyncIterator[SimpleNamespace]:
    """The tables of a slave in memory, and the part that follows; it is not started."""
    clock, folder = FakeClock(), tmp_path / "slave"
    found = SimpleNamespace(
        clock=clock,
        topics=TopicConfigManager(folder / "topics.json", CONFIG, clock),
        groups=SubscriptionGroupManager(folder / "subscriptionGroup.json", CONFIG, clock),
        offsets=ConsumerOffsetManager(folder / "consumerOffset.json", clock),
        schedule=ScheduleMessageService(
            folder / "delayOffset.json",
            CopyDelivery(store.appender, store.entry_reader, BrokerStatsManager(clock, "C"), V4_HOST),
            store.queues,
            store.flusher,
            delay_levels={1: 1000},
            clock=clock,
        ),
        timer=Timer(store, clock).service,
        request_modes=MessageRequestModeManager(folder / "messageRequestMode.json", CONFIG),
        timer_metrics=TimerMetrics(folder / "timermetrics"),
        registrations=[],
        stored_topics=set(),
        address=MasterAddress(lambda: "127.0.0.1:1"),
        other_log="",
        last_record=None,
        is_acting=False,
    )
    found.address.registered("ns", Master(master.address, ""))
    tables = FollowedTables(
        found.topics,
        found.groups,
        found.offsets,
        found.schedule,
        found.timer,
        found.request_modes,
        found.timer_metrics,
    )
    with ThreadPoolExecutor(1) as executor:
        async with stopping(RemotingClient()) as client:
            found.client = MasterClient(client, executor, lambda: found.address.master.address)
            found.sync = SlaveSynchronize(
                found.address,
                found.client,
                tables,
                MasterProgressGate(found.client, store.commit_log, lambda: found.last_record, store.flusher),
                clock,
                lambda: found.registrations.append(1),
                lambda: found.stored_topics,
                lambda: found.other_log,
                lambda: found.is_acting,
            )
            async with stopping(found.sync):
                yield found
