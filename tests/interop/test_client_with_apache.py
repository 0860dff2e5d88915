"""Our client and our mqadmin work with Apache's own name server and broker."""

import asyncio

import pytest

from rocketbroker.app.mqadmin.bench import bench
from rocketbroker.app.mqadmin.bench_loads import Load
from rocketbroker.app.mqadmin.doctor import doctor
from rocketbroker.app.mqadmin.top import top
from rocketbroker.app.mqadmin.why import why
from rocketbroker.client import AdminClient, Message, Producer, PushConsumer, ReceivedMessage
from tests.support.client_scenario import run_scenario
from tests.support.java import Java
from tests.support.java_process import JavaServer
from tests.support.producer_scenario import check_delay, run_producer_scenario


@pytest.mark.java
@pytest.mark.timeout(300)  # the first run fetches the jars
async def test_the_client_works_with_apaches_broker(java_namesrv: JavaServer, java_broker: JavaServer):
    await run_scenario(java_namesrv.address, java_broker.address)


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_the_producer_works_with_apaches_broker(java_namesrv: JavaServer, java_broker: JavaServer):
    await run_producer_scenario(java_namesrv.address)
    await check_delay(java_namesrv.address)


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_bench_and_top_work_with_apaches_broker(java_namesrv: JavaServer, java_broker: JavaServer):
    async with AdminClient(java_namesrv.address) as admin:
        measured = await bench(admin, "Measured", messages=50, duration=60, create=True)
        assert measured.failures == []
        assert {each.load.value: each.messages for each in measured.data["loads"]} == dict.fromkeys(Load, 50)
        seen = (await top(admin, as_json=True)).data
        assert [(row.addr, row.problem) for row in seen.brokers] == [(java_broker.address, "")]
        assert seen.brokers[0].disk is not None
        assert {row.topic: row.messages for row in seen.topics}["Measured"] == 200
        removed = await bench(admin, "Gone", "sync", messages=1, create=True, clean=True)
        assert removed.data["removed"]
        assert "Gone" not in await admin.fetch_all_topic_list()


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_doctor_and_why_work_with_apaches_broker(java_namesrv: JavaServer, java_broker: JavaServer):
    async def accept(_message: ReceivedMessage) -> None:
        await asyncio.sleep(0)

    address = java_namesrv.address
    async with (
        AdminClient(address) as admin,
        Producer("PG_Why", address) as producer,
        PushConsumer("CG_Why", address, handler=accept) as consumer,
    ):
        result = await producer.send(Message("WhyTopic", b"x", tags="a"), timeout_s=60)  # creates the topic
        assert (await why(admin, "CG_Why", "WhyTopic", msg_id=result.msg_id)).data["outcome"] in {"noClient", "noGroup"}
        await consumer.subscribe("WhyTopic", "b")
        async with asyncio.timeout(60):
            while (await why(admin, "CG_Why", "WhyTopic", msg_id=result.msg_id)).data["outcome"] != "filtered":
                pass
        found = (await doctor(admin, "CG_Why", "NoSuchTopic")).data
        # The disk of the machine may be full; nothing else is wrong.
        assert {each.check for each in found["findings"]} - {"disk"} == {"noRoute"}
        assert found["unknown"] == []


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(600)
async def test_client_and_producer_work_with_apaches_4_9(java: Java):
    java.server_version = "4.9.7"
    namesrv = await asyncio.to_thread(java.namesrv)
    broker = await asyncio.to_thread(java.broker, namesrv.address)
    await run_scenario(namesrv.address, broker.address)
    await run_producer_scenario(namesrv.address)
