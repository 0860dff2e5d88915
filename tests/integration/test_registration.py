"""Topics of a broker at its name server, over real sockets, for each way of registration."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.broker.persist.config_manager import encode_file
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper
from rocketbroker.codec.remoting.headers.admin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.running import running, stopping

LIMIT_S = 300
WAYS: dict[str, dict[str, Any]] = {
    "increments": {},
    "compressed": {"compressed_register": True},
    "single topics": {"enable_single_topic_register": True},
    "parts": {"enable_split_registration": True, "split_registration_size": 5},
    "compressed parts": {"enable_split_registration": True, "split_registration_size": 5, "compressed_register": True},
}


@asynccontextmanager
async def servers(
    folder: Path, *, deletes: bool = True, **settings: Any
) -> AsyncIterator[tuple[NamesrvController, BrokerController]]:
    """A name server, which drops topics that a registration does not name, and a broker."""
    of_namesrv = namesrv_settings(0, folder)
    config = of_namesrv.namesrv.model_copy(update={"delete_topic_with_broker_registration": deletes})
    async with running(NamesrvController(replace(of_namesrv, namesrv=config))) as namesrv:
        of_broker = broker_settings(0, folder, namesrv.address)
        given = replace(of_broker, broker=of_broker.broker.model_copy(update=settings))
        async with running(BrokerController.bind(given)) as broker:
            yield namesrv, broker


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with stopping(RemotingClient()) as made:
        yield made


def create_topic(topic: str) -> Command:
    header = CreateTopicRequestHeader(topic, "TBW102", 2, 2, 6, "SINGLE_TAG")
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def routed(namesrv: NamesrvController, broker: BrokerController) -> bool:
    """Tell whether the name server knows each topic of the broker, as it is."""
    queues = namesrv.route_info_manager.topic_queues
    return all(
        (found := queues.queues(name).get("broker-a")) is not None and found.read_queue_nums == topic.read_queue_nums
        for name, topic in broker.topic_configs.topics.items()
    )


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS.keys())
async def test_no_existing_topic_is_dropped(client: RemotingClient, tmp_path: Path, settings: dict[str, Any]):
    """The name server drops, with each registration, the topics that it does not name."""
    async with servers(tmp_path, **settings) as (namesrv, broker):
        assert routed(namesrv, broker)
        for number in range(12):
            assert (await client.invoke(broker.address, create_topic(f"T{number}"), LIMIT_S)).code == 0
            assert routed(namesrv, broker)
        header = CreateTopicRequestHeader("T0", "TBW102", 9, 9, 6, "SINGLE_TAG")
        await client.invoke(broker.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), LIMIT_S)
        assert routed(namesrv, broker)
        await asyncio.wait(broker.outer_api.register_all())
        assert routed(namesrv, broker)


@pytest.mark.parametrize("way", ["increments", "compressed", "single topics"])
async def test_a_deleted_topic_has_no_route_when_the_deletion_is_answered(
    client: RemotingClient, tmp_path: Path, way: str
):
    async with servers(tmp_path, **WAYS[way]) as (namesrv, broker):
        await client.invoke(broker.address, create_topic("T"), LIMIT_S)
        assert namesrv.route_info_manager.topic_queues.queues("T")
        command = request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))
        assert (await client.invoke(broker.address, command, LIMIT_S)).code == 0
        assert not namesrv.route_info_manager.topic_queues.queues("T")


async def test_a_second_broker_of_the_same_name_warns_and_takes_over_after_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "second").mkdir()
    async with servers(tmp_path) as (namesrv, first), AsyncExitStack() as stack:
        second = await stack.enter_async_context(
            running(BrokerController.bind(broker_settings(0, tmp_path / "second", namesrv.address)))
        )
        (told,) = [record for record in caplog.records if "not registered at name server" in record.getMessage()]
        assert told.levelname == "ERROR"
        assert "has its place; give each broker its own brokerName, brokerId and address" in told.getMessage()
        assert namesrv.route_info_manager.brokers.by_name["broker-a"].broker_addrs == {0: first.address}
        await first.stop()
        await asyncio.wait(second.outer_api.register_all())
        await second.outer_api.settled()
        assert second.outer_api.registered_at() == [namesrv.address]
        assert namesrv.route_info_manager.brokers.by_name["broker-a"].broker_addrs == {0: second.address}


async def check_many(client: RemotingClient, folder: Path, count: int) -> None:
    """A broker starts with so many topics; one that is created then has a route as well."""
    topics = {name: TopicConfig(name, 1, 1) for name in map("Topic{:0120}".format, range(count))}
    (folder / "config").mkdir()
    (folder / "config" / "topics.json").write_bytes(encode_file(TopicConfigSerializeWrapper(topics)))
    async with servers(folder) as (namesrv, broker):
        async with asyncio.timeout(LIMIT_S):
            while not routed(namesrv, broker):
                await asyncio.wait(broker.outer_api.register_all())
        answer = await client.invoke(broker.address, create_topic("Another"), LIMIT_S)
        assert answer.code == ResponseCode.SUCCESS
        assert routed(namesrv, broker)


async def test_a_broker_with_more_topics_than_fit_into_a_part(client: RemotingClient, tmp_path: Path):
    await check_many(client, tmp_path, 5_500)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_broker_with_more_topics_than_fit_into_a_frame(client: RemotingClient, tmp_path: Path):
    await check_many(client, tmp_path, 90_000)  # 40 MB


async def test_as_many_topics_as_there_may_be(client: RemotingClient, tmp_path: Path):
    async with servers(tmp_path, max_topic_nums=30, max_auto_create_topic_nums=25) as (namesrv, broker):
        room = 30 - len(broker.topic_configs.topics)
        for number in range(room):
            assert (await client.invoke(broker.address, create_topic(f"T{number}"), LIMIT_S)).code == 0
        refused = await client.invoke(broker.address, create_topic("OneMore"), LIMIT_S)
        assert refused.remark == (
            "maxTopicNums: 31 topics exceed the limit of 30; delete unused topics or raise maxTopicNums"
        )
        assert (await client.invoke(broker.address, create_topic("T0"), LIMIT_S)).code == 0, "it is there"
        sent = await client.invoke(broker.address, send("OneMore"), LIMIT_S)
        assert sent.code == ResponseCode.TOPIC_NOT_EXIST
        assert sent.remark == (
            "maxAutoCreateTopicNums: 31 topics exceed the limit of 25, or this address's share of it; delete unused "
            "topics or raise maxAutoCreateTopicNums"
        )
        assert (await client.invoke(broker.address, heartbeat("CG"), LIMIT_S)).code == 0
        assert "%RETRY%CG" not in broker.topic_configs.topics
        assert routed(namesrv, broker)


def send(topic: str) -> Command:
    header = SendMessageRequestHeader("PG", topic, "TBW102", 1, 0, 0, 1_000, 0, "")
    return request(RequestCode.SEND_MESSAGE, header, b"body")


def heartbeat(group: str) -> Command:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"%s","messageModel":1,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":1,"topic":"T"}]}],"producerDataSet":[]}'
    )
    return request(RequestCode.HEART_BEAT, body=body % group.encode())
