"""Apache's broker and mqadmin work with our name server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.remoting.bodies.route import QueueData, TopicRouteData
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.load import load_namesrv_settings
from tests.support.java import Java
from tests.support.java_process import JavaServer

TIMEOUT_S = 60.0


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[NamesrvController]:
    path = tmp_path / "namesrv.properties"
    path.write_text(f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kvConfig.json\n")
    controller = NamesrvController(load_namesrv_settings(path))
    await controller.start()
    yield controller
    await controller.stop()


async def start_broker(java: Java, namesrv: NamesrvController, **settings: Any) -> JavaServer:
    return await asyncio.to_thread(java.broker, namesrv=namesrv.address, **settings)


async def mqadmin(java: Java, namesrv: NamesrvController, *arguments: str) -> str:
    """The output of a command that succeeded."""
    done = await asyncio.to_thread(java.mqadmin, *arguments, namesrv=namesrv.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.java
@pytest.mark.timeout(600)  # the first run fetches the jars
async def test_apaches_broker_and_tools_use_our_name_server(java: Java, namesrv: NamesrvController) -> None:
    # The compressed registration, and asking by QUERY_DATA_VERSION whether to register at all, are off by default.
    broker = await start_broker(java, namesrv, compressedRegister="true", forceRegister="false")

    assert broker.address in await mqadmin(java, namesrv, "clusterList")
    # It is asked so when another broker wants its place.
    held = namesrv.route_info_manager.brokers.live[broker.address]
    assert (await held.connection.invoke(request(RequestCode.HEART_BEAT), TIMEOUT_S)).code
    made = await mqadmin(
        java, namesrv, "updateTopic", "-b", broker.address, "-t", "TopicA", "-r", "3", "-w", "2", "-o", "true"
    )
    assert "success" in made
    assert "TopicA" in (await mqadmin(java, namesrv, "topicList")).split()
    shown = await mqadmin(java, namesrv, "topicRoute", "-t", "TopicA")
    route = TopicRouteData.decode(shown.encode())
    assert route.queue_datas == [QueueData("broker-a", 3, 2, 6)]
    assert route.broker_datas[0].broker_addrs == {0: broker.address}

    wiped = await mqadmin(java, namesrv, "wipeWritePerm", "-b", "broker-a", "-n", namesrv.address)
    assert wiped.split()[-2:] == ["OK,", str(len(namesrv.route_info_manager.topic_queues.topics()))]
    assert namesrv.route_info_manager.topic_queues.queues("TopicA")["broker-a"].perm == 4
    await mqadmin(java, namesrv, "addWritePerm", "-b", "broker-a", "-n", namesrv.address)
    assert namesrv.route_info_manager.topic_queues.queues("TopicA")["broker-a"].perm == 6

    await mqadmin(java, namesrv, "updateKvConfig", "-s", "ns1", "-k", "k1", "-v", "v1")
    assert namesrv.kv_config_manager.get("ns1", "k1") == "v1"
    await mqadmin(java, namesrv, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    shown = await mqadmin(java, namesrv, "getNamesrvConfig")
    assert "orderMessageEnable" in shown
    assert "true" in shown.partition("orderMessageEnable")[2].splitlines()[0]

    await asyncio.to_thread(broker.kill)
    async with asyncio.timeout(TIMEOUT_S):
        while namesrv.route_info_manager.brokers.live:  # noqa: ASYNC110 - state of another part, which tells nobody
            await asyncio.sleep(0.05)
    assert "TopicA" not in (await mqadmin(java, namesrv, "topicList")).split()
