"""Groups that read far behind are disabled, others are not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.broker import broker_protection
from rocketbroker.broker.broker_protection import BrokerProtection
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.remoting.bodies.client import ConsumerData, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.running import running
from tests.support.stores import make_store, message


class Protected:
    """A store with ten messages, and the groups that consume them."""

    def __init__(self, folder: Path, store: MessageStore) -> None:
        clock = FakeClock()
        self.config = BrokerConfig(disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=0)
        self.consumers = ConsumerManager(clock, 120.0, lambda _info: None)
        self.offsets = ConsumerOffsetManager(folder / "consumerOffset.json", clock)
        self.groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", self.config, clock)
        self.store = store
        self.queue_nums: dict[str, int] = {"T": 1}
        self.protection = BrokerProtection(
            self.config, self.consumers, self.offsets, self.groups, store.queues,
            lambda: store.commit_log.max_offset, self.queue_nums.get,
        )  # fmt: skip
        self.ends = [store.commit_log.max_offset]
        for _ in range(10):
            store.appender.put_message(message(b"x", "T", 0))
            self.ends.append(store.commit_log.max_offset)
        store.appender.dispatch()

    def join(self, group: str, offset: int, model: MessageModel = MessageModel.CLUSTERING) -> None:
        self.groups.update(SubscriptionGroupConfig(group))
        data = ConsumerData(group, message_model=model, subscription_data_set=[SubscriptionData("T", "*", 1)])
        self.consumers.register(ClientChannelInfo(FakeConnection(), group, "JAVA", 513, 0.0), data)
        self.offsets.commit(group, "T", 0, offset)

    def behind(self, offset: int) -> int:
        return self.ends[-1] - self.ends[offset]

    def disabled(self) -> set[str]:
        return {name for name, group in self.groups.groups.items() if not group.consume_enable}


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[Protected]:
    async with running(make_store(tmp_path / "store")) as store:
        yield Protected(tmp_path, store)


async def test_a_group_beyond_the_threshold_is_disabled_and_said_so(
    protected: Protected, caplog: pytest.LogCaptureFixture
) -> None:
    protected.join("slow", 3)
    protected.join("fast", 4)
    protected.join("done", 10)
    apply_updates([protected.config], {"consumerFallbehindThreshold": str(protected.behind(4))})

    await protected.protection.protect()
    await protected.protection.protect()

    assert protected.disabled() == {"slow"}
    (said,) = [record.getMessage() for record in caplog.records if "is disabled" in record.getMessage()]
    assert f"group slow is disabled: it is {protected.behind(3):,} bytes behind in queue 0 of topic T" in said


async def test_groups_that_broadcast_left_or_belong_to_the_broker_are_left_alone(protected: Protected) -> None:
    protected.join("broadcasts", 0, MessageModel.BROADCASTING)
    protected.join("CID_RMQ_SYS_X", 0)
    protected.groups.update(SubscriptionGroupConfig("gone"))
    protected.offsets.commit("gone", "T", 0, 0)

    await protected.protection.protect()

    assert protected.disabled() == set()


async def test_queues_that_nobody_can_read_do_not_count(protected: Protected) -> None:
    protected.join("G", 0)
    protected.queue_nums["T"] = 0
    await protected.protection.protect()
    protected.queue_nums.clear()
    await protected.protection.protect()
    assert protected.disabled() == set()

    protected.queue_nums["T"] = 1
    await protected.protection.protect()
    assert protected.disabled() == {"G"}


async def test_others_run_between_two_groups(protected: Protected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_protection, "_AT_A_TIME", 6)
    for number in range(10):
        protected.join(f"G{number}", 0)

    protecting = asyncio.create_task(protected.protection.protect())
    await asyncio.sleep(0)
    seen = len(protected.disabled())
    await protecting

    assert 0 < seen < 5
    assert len(protected.disabled()) == 10


async def test_a_group_that_leaves_meanwhile_is_left_alone(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_protection, "_AT_A_TIME", 1)
    protected.join("G", 0)

    protecting = asyncio.create_task(protected.protection.protect())
    await asyncio.sleep(0)
    protected.consumers.groups.clear()
    await protecting

    assert protected.disabled() == set()


async def test_nothing_is_disabled_unless_it_is_asked_for(protected: Protected) -> None:
    protected.join("slow", 0)
    apply_updates([protected.config], {"disableConsumeIfConsumerReadSlowly": "false"})
    await protected.protection.protect()
    assert protected.disabled() == set()

    apply_updates([protected.config], {"disableConsumeIfConsumerReadSlowly": "true"})
    await protected.protection.protect()
    assert protected.disabled() == {"slow"}
