import asyncio
from functools import partial

import pytest

from rocketbroker.broker.client import consumer_manager
from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_manager import (
    ConsumerIdsChangeListener,
    ConsumerManager,
    notify_consumer_ids_changed,
    reset_consumer_client_offset,
    reset_offset_body,
)
from rocketbroker.broker.client.producer_manager import ClientHousekeepingService, ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rocketbroker.codec.remoting.bodies.offset import ResetOffsetBody
from rocketbroker.codec.remoting.headers.message import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.current_settings import apply_updates
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.waiting import until

GROUP = ConsumerData("g", subscription_data_set=[SubscriptionData("T", "*", 1)])


@pytest.fixture
async def listener():
    found = ConsumerIdsChangeListener(BrokerConfig())
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
def listening_manager(listener):
    return ConsumerManager(FakeClock(), 120.0, listener.group_changed)


def join(manager, number):
    connection = FakeConnection()
    manager.register(ClientChannelInfo(connection, f"c{number}", "JAVA", 513, 0.0), GROUP)
    return connection


async def test_all_clients_are_notified_soon(listening_manager):
    one, two = join(listening_manager, 1), join(listening_manager, 2)
    await until(lambda: one.sent and two.sent)
    assert [command.header.consumer_group for command in one.sent + two.sent] == ["g", "g"]
    assert all(command.is_oneway for command in one.sent)


async def test_members_that_leave_together_are_notified_as_one_change(listening_manager):
    members = [join(listening_manager, number) for number in range(1_500)]
    await until(lambda: members[-1].sent)
    for member in members[:-1]:
        listening_manager.close_connection(member)
        await asyncio.sleep(0)
    await until(lambda: len(members[-1].sent) == 2)
    assert sum(len(member.sent) for member in members) <= 2 * len(members)


async def test_a_client_that_is_behind_is_notified_once_when_it_has_caught_up(listening_manager, listener, monkeypatch):
    monkeypatch.setattr(consumer_manager, "BEHIND_PERIOD_S", 0.001)
    slow = FakeConnection()
    slow.is_behind = True
    listening_manager.register(ClientChannelInfo(slow, "slow", "JAVA", 513, 0.0), GROUP)
    for number in range(20):
        other = join(listening_manager, number)
        await until(partial(getattr, other, "sent"))
    assert slow.sent == []
    slow.is_behind = False
    await until(lambda: slow.sent)
    assert len(slow.sent) == 1
    assert not listener._behind


async def test_a_client_that_is_gone_is_forgotten(listening_manager, listener, monkeypatch):
    monkeypatch.setattr(consumer_manager, "BEHIND_PERIOD_S", 0.001)
    slow = FakeConnection()
    slow.is_behind = True
    listening_manager.register(ClientChannelInfo(slow, "slow", "JAVA", 513, 0.0), GROUP)
    await until(lambda: listener._behind)
    slow.is_open = False
    listening_manager.close_connection(slow)
    await until(lambda: not listener._behind)
    assert slow.sent == []
    assert not listener._changed


TIMEOUT_S = 120.0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def manager(clock):
    def notify(info):
        for connection in info.channels:
            notify_consumer_ids_changed(info.group_name, connection)

    return ConsumerManager(clock, TIMEOUT_S, notify)


def data(*subscriptions, group="g", model=MessageModel.CLUSTERING):
    return ConsumerData(group, ConsumeType.CONSUME_PASSIVELY, model, None, list(subscriptions))


def subscription(topic="T", expression="*", version=1):
    return SubscriptionData(topic, expression, version)


def client(clock, name, connection=None):
    return ClientChannelInfo(connection or FakeConnection(), name, "JAVA", 513, clock.monotonic())


def notified(connection):
    sent, connection.sent = connection.sent, []
    assert all(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway for command in sent)
    return [command.header.consumer_group for command in sent]


def test_join_renew_and_leave_notify_the_group(clock, manager):
    one, two = client(clock, "one"), client(clock, "two")
    assert manager.register(one, data(subscription()))
    assert notified(one.connection) == ["g"]
    assert not manager.register(client(clock, "one", one.connection), data(subscription()))
    assert notified(one.connection) == []
    assert manager.register(two, data(subscription()))
    assert notified(one.connection) == notified(two.connection) == ["g"]
    assert manager.group_info("g").client_ids() == ["one", "two"]
    assert manager.find_channel("g", "two") is two
    manager.unregister("g", two.connection)
    assert notified(one.connection) == ["g"]
    assert notified(two.connection) == []
    manager.unregister("g", one.connection)
    assert manager.group_info("g") is None
    assert manager.find_channel("g", "one") is None


def test_broadcasting_and_unwilling_groups_are_not_notified(clock, manager):
    one, two = client(clock, "one"), client(clock, "two")
    manager.register(one, data(group="b", model=MessageModel.BROADCASTING))
    manager.register(two, data(group="q"), notify_enabled=False)
    manager.register(client(clock, "three"), data(group="b", model=MessageModel.BROADCASTING))
    manager.close_connection(two.connection)
    assert notified(one.connection) == notified(two.connection) == []


def test_subscription_changes(clock, manager):
    one = client(clock, "one")
    manager.register(one, data(subscription("T", "A", 5)))
    notified(one.connection)
    # A greater version replaces, a smaller one does not; neither is a change of topics.
    assert not manager.register(one, data(subscription("T", "A || B", 6)))
    assert not manager.register(one, data(subscription("T", "C", 4)))
    found = manager.find_subscription_data("g", "T")
    assert (found.data.sub_string, found.sub_version) == ("A || B", 6)
    assert found.tag_codes == frozenset({65, 66})
    assert manager.register(one, data(subscription("T", "A || B", 6), subscription("U")))
    assert manager.groups_subscribed_to("U") == ["g"]
    assert manager.register(one, data(subscription("U")))
    assert manager.find_subscription_data("g", "T") is None
    assert notified(one.connection) == ["g", "g"]


def test_heartbeat_without_subscriptions_keeps_them(clock, manager):
    one = client(clock, "one")
    manager.register(one, data(subscription()))
    assert not manager.register(one, data(), update_subscription=False)
    assert manager.find_subscription_data("g", "T") is not None


def test_lost_connection_is_dropped_at_once_from_all_groups(clock, manager):
    one, two = client(clock, "one"), client(clock, "two")
    for group in ("g", "h"):
        manager.register(one, data(subscription(), group=group))
    manager.register(two, data(subscription()))
    notified(two.connection)
    manager.close_connection(one.connection)
    assert manager.group_info("g").client_ids() == ["two"]
    assert manager.group_info("h") is None
    assert notified(two.connection) == ["g"]
    manager.close_connection(one.connection)
    assert notified(two.connection) == []


def test_frozen_client_is_closed_and_its_group_notified(clock, manager):
    producers = ProducerManager(clock, TIMEOUT_S)
    service = ClientHousekeepingService(producers, manager, RebalanceLockManager(clock))
    frozen, alive = client(clock, "frozen"), client(clock, "alive")
    manager.register(frozen, data(subscription()))
    manager.register(alive, data(subscription()))
    clock.advance(TIMEOUT_S)
    service.scan()
    assert frozen.connection.is_open
    manager.register(client(clock, "alive", alive.connection), data(subscription()))
    notified(alive.connection)
    clock.advance(10)
    service.scan()
    assert not frozen.connection.is_open
    assert "frozen sent no heartbeat for 120 s" in frozen.connection.close_reason
    assert alive.connection.is_open
    assert manager.group_info("g").client_ids() == ["alive"]
    assert notified(alive.connection) == ["g"]


def test_one_connection_with_two_client_ids(clock, manager, caplog):
    connection = FakeConnection()
    manager.register(client(clock, "first", connection), data(subscription()))
    assert not manager.register(client(clock, "second", connection), data(subscription()))
    assert manager.group_info("g").client_ids() == ["second"]
    assert "changed its id to second" in caplog.text


def test_a_client_that_came_back_before_its_old_connection_is_gone_is_found_by_the_new_one(clock, manager):
    old, new = client(clock, "one"), client(clock, "one")
    manager.register(old, data())
    manager.register(new, data())
    manager.register(old, data())
    assert manager.find_channel("g", "one") is new
    manager.close_connection(old.connection)
    assert manager.find_channel("g", "one") is new


@pytest.mark.proves(
    "Consumers",
    "clients of one group that subscribe to different things are named in the log, counted, and shown by "
    "`consumerStatus`",
)
def test_clients_of_a_group_that_subscribe_to_different_things(clock, manager, caplog):
    one, two = client(clock, "one"), client(clock, "two")
    manager.register(one, data(subscription("T", "a")))
    assert manager.runtime_info() == {}
    for _ in range(3):
        manager.register(two, data(subscription("T", "b")))
        manager.register(one, data(subscription("T", "a")))
        manager.register(two, data(), update_subscription=False)
    assert caplog.text.count("group g gets only a part of its messages") == 1
    assert "one wants a and two wants b" in caplog.text
    assert manager.runtime_info() == {"subscriptionConflicts": "1", "subscriptionConflictGroups": "1"}
    manager.unregister("g", two.connection)
    assert manager.runtime_info() == {"subscriptionConflicts": "1", "subscriptionConflictGroups": "0"}
    manager.register(two, data(subscription("T", "c")))
    assert manager.conflict_count == 2


def test_a_group_that_pops_without_heartbeats_counts_as_subscribed_for_ten_minutes(clock, manager):
    manager.compensate_subscribe_data("g", "T", None, "A || B")
    manager.compensate_subscribe_data("g", "U", "SQL92", "a = 1")
    tags, sql = (manager.find_subscription_data("g", topic).data for topic in "TU")
    assert (tags.sub_string, tags.tags_set, tags.code_set, tags.expression_type) == (
        "A || B",
        ["A", "B"],
        [65, 66],
        "TAG",
    )
    assert (sql.sub_string, sql.tags_set, sql.expression_type) == ("a = 1", [], "SQL92")
    assert manager.group_info("g") is None, "it has no client"
    manager.register(client(clock, "one"), data(subscription(expression="C")))
    assert manager.find_subscription_data("g", "T").data.sub_string == "C", "heartbeats count first"

    clock.advance(300)
    manager.compensate_subscribe_data("g", "U", "SQL92", "a = 1")
    clock.advance(301)
    assert [manager.has_popped("g", topic) for topic in "TU"] == [False, True]
    manager.scan_not_active()
    assert (list(manager._compensated), manager.find_subscription_data("g", "T")) == ([("g", "U")], None)
    clock.advance(300)
    assert not manager.has_popped("g", "U")
    manager.scan_not_active()
    assert not manager._compensated


def test_subscriptions_of_pops_are_bounded(clock, manager, monkeypatch):
    monkeypatch.setattr(consumer_manager, "_MOST_COMPENSATED", 3)
    for group in "abcad":
        clock.advance(1)
        manager.compensate_subscribe_data(group, "T", None, "*")
    assert [group for group, _ in manager._compensated] == ["c", "a", "d"], "the oldest pop is forgotten"
    manager.compensate_subscribe_data("e", "T", None, "x" * 257)
    assert manager.has_popped("e", "T")
    assert manager.find_subscription_data("e", "T") is None, "a long expression is not kept"


async def test_housekeeping_scans_by_itself(clock, manager):
    producers = ProducerManager(clock, TIMEOUT_S)
    producer = client(clock, "producer")
    producers.register("p", producer)
    service = ClientHousekeepingService(producers, manager, RebalanceLockManager(clock), period_s=0.005)
    await service.start()
    clock.advance(TIMEOUT_S + 1)
    async with asyncio.timeout(60):
        while producer.connection.is_open:  # noqa: ASYNC110 - the scan tells nobody
            await asyncio.sleep(0.005)
    await service.stop()
    assert producers.groups == {}


def test_each_client_gets_the_offsets_in_its_form():
    queue = MessageQueue("T", "broker-a", 3)
    connections = {language: FakeConnection() for language in ("JAVA", "CPP")}
    clients = [ClientChannelInfo(found, language, language, 513, 0.0) for language, found in connections.items()]
    header = ResetOffsetRequestHeader("g", "T", 5, True)
    for client in clients:
        assert reset_consumer_client_offset(client, header, reset_offset_body(client, {queue: 42}).encode())
    sent = {}
    for language, connection in connections.items():
        (command,) = connection.sent
        assert (command.code, command.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert command.header == header
        sent[language] = command.body
    assert ResetOffsetBody.decode(sent["JAVA"]).offset_table == {queue: 42}
    assert fastjson.loads(sent["CPP"]) == {
        "offsetTable": [{"brokerName": "broker-a", "offset": 42, "queueId": 3, "topic": "T"}]
    }


async def test_nobody_is_notified_where_that_is_off():
    config = BrokerConfig(notify_consumer_ids_changed_enable=False)
    listener = ConsumerIdsChangeListener(config)
    await listener.start()
    manager = ConsumerManager(FakeClock(), 120.0, listener.group_changed)
    one = join(manager, 1)
    apply_updates([config], {"notifyConsumerIdsChangedEnable": "true"})
    two = join(manager, 2)
    await until(lambda: two.sent)
    await listener.stop()

    assert len(one.sent) == 1
