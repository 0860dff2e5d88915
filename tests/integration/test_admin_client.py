"""Each call of the admin client that no other test makes, against a running broker."""

import asyncio

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import ConsumerNotOnlineError, ServerFaultError, TopicNotExistError
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.client import CMResult
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.testing import RocketMQServer
from tests.support.waiting import LIMIT_S


async def test_name_servers_are_administered(mq: RocketMQServer, admin: AdminClient):
    await admin.put_kv_config("NS", "key", "value")
    assert await admin.get_kv_config("NS", "key") == "value"
    assert await admin.get_kv_list_by_namespace("NS") == {"key": "value"}
    await admin.delete_kv_config("NS", "key")
    assert await admin.get_kv_config("NS", "key") is None
    assert (await admin.get_name_server_config())[mq.namesrv_addr]["listenPort"]
    await admin.update_name_server_config({"enableTopicList": "true"})
    await admin.create_and_update_topic_config_list(mq.broker_addr, [TopicConfig("A"), TopicConfig("B")])
    assert {"A", "B"} <= set(await admin.get_topics_by_cluster("DefaultCluster"))
    assert "DefaultCluster" in await admin.get_system_topic_list()
    flags = {"Plain": 0, "Unit": 1, "Sub": 2, "Both": 3}
    units = [TopicConfig(name, topic_sys_flag=flag) for name, flag in flags.items()]
    await admin.create_and_update_topic_config_list(mq.broker_addr, units)
    assert set(await admin.get_unit_topic_list()) == {"Unit", "Both"}
    assert set(await admin.get_has_unit_sub_topic_list()) == {"Sub", "Both"}
    assert await admin.get_has_unit_sub_un_unit_topic_list() == ["Sub"]
    members = await admin.get_broker_member_group("DefaultCluster", "broker-a")
    assert members is not None
    assert members.broker_addrs == {0: mq.broker_addr}
    assert (await admin.wipe_write_perm_of_broker("broker-a"))[mq.namesrv_addr] >= 2
    assert (await admin.add_write_perm_of_broker("broker-a"))[mq.namesrv_addr] >= 2


async def test_topics_and_groups_of_a_broker_are_administered(mq: RocketMQServer, admin: AdminClient):
    broker = mq.broker_addr
    await admin.create_and_update_topic_config_list(broker, [TopicConfig("A", 3, 3)])
    assert (await admin.examine_topic_config(broker, "A")).read_queue_nums == 3
    with pytest.raises(TopicNotExistError):
        await admin.examine_topic_config(broker, "Nothing")
    assert (await admin.get_all_topic_config(broker))["A"].write_queue_nums == 3
    assert await admin.earliest_msg_store_time(broker, "A", 0) == -1
    await admin.create_and_update_subscription_group_config(broker, SubscriptionGroupConfig("g1", retry_max_times=3))
    await admin.create_and_update_subscription_group_config_list(broker, [SubscriptionGroupConfig("g2")])
    assert (await admin.examine_subscription_group_config(broker, "g1")).retry_max_times == 3
    forbidden = await admin.update_and_get_group_read_forbidden(broker, "g1", "A", readable=False)
    assert (forbidden.group, forbidden.readable) == ("g1", False)
    groups = await admin.get_all_subscription_group(broker)
    assert {"g1", "g2"} <= groups.subscription_group_table.keys()
    await admin.delete_subscription_group(broker, "g2", clean_offset=True)
    assert "g2" not in (await admin.get_all_subscription_group(broker)).subscription_group_table


async def waiting_by_topic(admin: AdminClient, broker: str) -> dict[str, int]:
    return {topic: each.count for topic, each in (await admin.get_timer_metrics(broker)).timing_count.items()}


async def test_a_broker_reports_its_state(mq: RocketMQServer, admin: AdminClient):
    broker = mq.broker_addr
    async with Producer("producers", mq.namesrv_addr) as producer:
        result = await producer.send(Message("T", b"body"))
        assert await waiting_by_topic(admin, broker) == {}
        await producer.send(Message("T", b"later", delay_time_ms=3_600_000))
        async with asyncio.timeout(LIMIT_S):
            while not await waiting_by_topic(admin, broker):  # noqa: ASYNC110 - it is read from the queue later
                await asyncio.sleep(0.01)
        assert [
            each.language for each in (await admin.examine_producer_connection_info("producers", "T")).connection_set
        ]
        assert "producers" in (await admin.get_all_producer_info(broker)).data
    assert (await admin.get_broker_config(broker))["brokerName"] == "broker-a"
    await admin.update_broker_config(broker, {"defaultQueryMaxNum": "33"})
    assert (await admin.get_broker_config(broker))["defaultQueryMaxNum"] == "33"
    assert (await admin.get_broker_ha_status(broker)).master
    assert "TBW102" in await admin.get_system_topic_list_from_broker(broker)
    queue_id = result.message_queue.queue_id
    entries = await admin.query_consume_queue(broker, "T", queue_id, 0, 1)
    assert entries.max_queue_index == 1
    assert await admin.earliest_msg_store_time(broker, "T", queue_id) > 0
    with pytest.raises(ServerFaultError):
        await admin.view_broker_stats_data(broker, "TOPIC_PUT_NUMS", "Nothing")
    assert (await admin.view_broker_stats_data(broker, "TOPIC_PUT_NUMS", "T")).stats_minute.sum >= 0
    assert (await admin.fetch_consume_stats_in_broker(broker)).total_diff >= 0
    assert (await admin.get_all_consumer_offset(broker)).offset_table == {}
    assert isinstance((await admin.get_all_delay_offset(broker)).offset_table, dict)
    assert (await admin.get_timer_check_point(broker)).last_timer_queue_offset >= 0
    assert await waiting_by_topic(admin, broker) == {"T": 1}
    assert (await admin.get_all_message_request_mode(broker)).message_request_mode_map == {}
    await admin.set_message_request_mode(broker, "T", "group", MessageRequestMode.POP, 3)
    mode = (await admin.get_all_message_request_mode(broker)).message_request_mode_map["T"]["group"]
    assert (mode.mode, mode.pop_share_queue_num) == (MessageRequestMode.POP, 3)
    with pytest.raises(ServerFaultError):
        await admin.resume_check_half_message(broker, "T", result.offset_msg_id)


async def test_members_of_a_group_are_administered(mq: RocketMQServer, admin: AdminClient):
    received: list[ReceivedMessage] = []
    arrived = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        arrived.set()

    async with (
        Producer("producers", mq.namesrv_addr) as producer,
        PushConsumer("group", mq.namesrv_addr, handler=handle, persist_interval_s=0.05) as consumer,
    ):
        result = await producer.send(Message("T", b"body", tags="a"))
        await consumer.subscribe("T", "a")
        async with asyncio.timeout(60):
            await arrived.wait()
            while "T" not in await admin.query_topics_by_consumer("group"):  # noqa: ASYNC110 - nothing signals a commit
                await asyncio.sleep(0.02)
        subscription = await admin.query_subscription("group", "T")
        assert subscription is not None
        assert subscription.sub_string == "a"
        client_id = (await admin.examine_consumer_connection_info("group")).connection_set[0].client_id
        done = await admin.consume_message_directly("group", client_id, "T", result.offset_msg_id)
        assert done.consume_result is CMResult.CR_SUCCESS
        assert len(received) == 2
    spans = await admin.query_consume_time_span("T", "group")
    assert {span.message_queue.queue_id for span in spans if span.message_queue} >= {result.message_queue.queue_id}
    offsets = await admin.query_correction_offset(mq.broker_addr, "T", "group")
    assert result.message_queue.queue_id in offsets
    with pytest.raises(ConsumerNotOnlineError):
        await admin.examine_consumer_connection_info("group")
