import asyncio
from functools import partial

import pytest

from rocketbroker.broker.client import consumer_ids_change_listener
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_ids_change_listener import ConsumerIdsChangeListener
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.waiting import until

GROUP = ConsumerData("g", subscription_data_set=[SubscriptionData("T", "*", 1)])


@pytest.fixture
async def listener():
    found = ConsumerIdsChangeListener()
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
def manager(listener):
    return ConsumerManager(FakeClock(), 120.0, listener.group_changed)


def join(manager, number):
    connection = FakeConnection()
    manager.register(ClientChannelInfo(connection, f"c{number}", "JAVA", 513, 0.0), GROUP)
    return connection


async def test_all_clients_are_notified_soon(manager):
    one, two = join(manager, 1), join(manager, 2)
    await until(lambda: one.sent and two.sent)
    assert [command.header.consumer_group for command in one.sent + two.sent] == ["g", "g"]
    assert all(command.is_oneway for command in one.sent)


async def test_members_that_leave_together_are_notified_as_one_change(manager):
    members = [join(manager, number) for number in range(1_500)]
    await until(lambda: members[-1].sent)
    for member in members[:-1]:
        manager.close_connection(member)
        await asyncio.sleep(0)
    await until(lambda: len(members[-1].sent) == 2)
    assert sum(len(member.sent) for member in members) <= 2 * len(members)


async def test_a_client_that_is_behind_is_notified_once_when_it_has_caught_up(manager, listener, monkeypatch):
    monkeypatch.setattr(consumer_ids_change_listener, "BEHIND_PERIOD_S", 0.001)
    slow = FakeConnection()
    slow.is_behind = True
    manager.register(ClientChannelInfo(slow, "slow", "JAVA", 513, 0.0), GROUP)
    for number in range(20):
        other = join(manager, number)
        await until(partial(getattr, other, "sent"))
    assert slow.sent == []
    slow.is_behind = False
    await until(lambda: slow.sent)
    assert len(slow.sent) == 1
    assert not listener._behind


async def test_a_client_that_is_gone_is_forgotten(manager, listener, monkeypatch):
    monkeypatch.setattr(consumer_ids_change_listener, "BEHIND_PERIOD_S", 0.001)
    slow = FakeConnection()
    slow.is_behind = True
    manager.register(ClientChannelInfo(slow, "slow", "JAVA", 513, 0.0), GROUP)
    await until(lambda: listener._behind)
    slow.is_open = False
    manager.close_connection(slow)
    await until(lambda: not listener._behind)
    assert slow.sent == []
    assert not listener._changed
