"""Apache's name server keeps every topic of our broker, also where it drops those that a registration does not name."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.admin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.java import Java

LIMIT_S = 30
WAYS: list[dict[str, Any]] = [
    {},
    {"compressed_register": True},
    {"enable_single_topic_register": True},
    {"enable_split_registration": True, "split_registration_size": 5},
]


@pytest.mark.java
@pytest.mark.timeout(600)  # the first run fetches the jars
async def test_no_existing_topic_is_dropped(java: Java, tmp_path: Path) -> None:
    namesrv = await asyncio.to_thread(java.namesrv, deleteTopicWithBrokerRegistration="true")
    client = RemotingClient()

    async def queues_of(topic: str) -> int:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        answer = await client.invoke(namesrv.address, command, LIMIT_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return 0
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return TopicRouteData.decode(answer.body).queue_datas[0].read_queue_nums

    for number, settings in enumerate(WAYS):
        given = broker_settings(0, tmp_path / str(number), namesrv.address)
        broker = BrokerController.bind(replace(given, broker=given.broker.model_copy(update=settings)))
        await broker.start()
        wanted: dict[str, int] = {}
        for topic, queues in [*((f"T{each}", 2) for each in range(8)), ("T0", 9), ("T7", 5)]:
            header = CreateTopicRequestHeader(topic, "TBW102", queues, queues, 6, "SINGLE_TAG")
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert (await client.invoke(broker.address, command, LIMIT_S)).code == ResponseCode.SUCCESS
            wanted[topic] = queues
            assert {name: await queues_of(name) for name in wanted} == wanted, settings
        await asyncio.wait(broker.outer_api.register_all())
        assert {name: await queues_of(name) for name in wanted} == wanted, settings
        if "enable_split_registration" not in settings:
            command = request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T3"))
            assert (await client.invoke(broker.address, command, LIMIT_S)).code == ResponseCode.SUCCESS
            assert await queues_of("T3") == 0, settings
        await broker.stop()
    await client.stop()
