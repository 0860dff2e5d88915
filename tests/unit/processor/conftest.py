"""The parts of a broker that processors are given."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.broker.broker2client import notify_consumer_ids_changed
from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.producer_manager import ProducerManager
from rocketbroker.broker.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.common.config import BrokerConfig
from tests.support.fakes import FakeClock


@pytest.fixture
def parts(tmp_path: Path) -> SimpleNamespace:
    """A broker without store and network."""
    clock = FakeClock()
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1")
    return SimpleNamespace(
        clock=clock,
        config=config,
        topic_configs=TopicConfigManager(tmp_path / "topics.json", config, clock),
        subscription_groups=SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config, clock),
        offsets=ConsumerOffsetManager(tmp_path / "consumerOffset.json", clock),
        consumers=ConsumerManager(clock, 120.0, notify_consumer_ids_changed),
        producers=ProducerManager(clock, 120.0),
        locks=RebalanceLockManager(clock),
        stats=BrokerStatsManager(clock, "DefaultCluster"),
    )
