"""The parts of a broker that processors are given."""

from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.processor.support.long_answers import AnswerEncoder
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.golden_store import unpack
from tests.support.running import running
from tests.support.stores import make_store


@pytest.fixture
def parts(tmp_path: Path) -> SimpleNamespace:
    """A broker without store and network."""
    clock = FakeClock()
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")
    consumer_filters = ConsumerFilterManager(tmp_path / "consumerFilter.json", config, clock)
    topics = TopicConfigManager(tmp_path / "topics.json", config, clock)
    groups = SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config, clock)
    return SimpleNamespace(
        clock=clock,
        config=config,
        topics=topics,
        topic_configs=topics,
        groups=groups,
        subscription_groups=groups,
        offsets=ConsumerOffsetManager(tmp_path / "consumerOffset.json", clock),
        consumer_filters=consumer_filters,
        consumers=ConsumerManager(clock, 120.0, lambda _info: None, consumer_filters.unregister),
        producers=ProducerManager(clock, 120.0),
        send_backs=SendBackAllowance(config, clock),
        locks=RebalanceLockManager(clock),
        stats=BrokerStatsManager(clock, "DefaultCluster"),
        slave=None,
    )


@pytest.fixture
def offset_reset(parts: SimpleNamespace) -> OffsetReset:
    """Resets the offsets of ``parts``; the disk takes all."""

    async def drain() -> Collection[Path]:
        return ()

    return OffsetReset(
        parts.config, parts.offsets, PullRequestHoldService(parts.config), PopLongPollingService(parts.config), drain
    )


@pytest.fixture
async def store(tmp_path: Path, parts: SimpleNamespace) -> AsyncIterator[MessageStore]:
    """A running store with small files whose time is that of ``parts.clock``."""
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    topics = parts.topic_configs.topics
    found = MessageStore(config, host_bytes("127.0.0.1", 10911), NoListener(), parts.clock, topics=topics)
    async with running(found):
        yield found


@pytest.fixture
async def sync_store(parts: SimpleNamespace, tmp_path: Path) -> AsyncIterator[MessageStore]:
    """A running store that acknowledges what is on disk (SYNC_FLUSH)."""
    found = make_store(tmp_path / "sync", parts.clock, flush_disk_type="SYNC_FLUSH")
    async with running(found):
        yield found


@pytest.fixture
async def golden_store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """The recorded store that was stopped in order, opened; its manifest says what is in it."""
    found = make_store(unpack("clean", tmp_path / "golden"))
    async with running(found):
        yield found


@pytest.fixture
def encoder(parts: SimpleNamespace) -> Iterator[AnswerEncoder]:
    """Encodes long answers on a thread."""
    with ThreadPoolExecutor(1) as executor:
        yield AnswerEncoder(parts.config, executor)
