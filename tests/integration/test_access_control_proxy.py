"""mqproxy before brokers with access control: its calls by their users, its own requests by the inner credentials."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest

from rocketbroker.app.grpc_port import cluster_port
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import JOE, PROPERTIES, TOPIC, Cluster
from tests.integration.test_access_control_grpc import T
from tests.support.grpc_calls import METADATA, method, signed
from tests.support.ports import LOOPBACK
from tests.support.running import running
from tests.support.waiting import LIMIT_S

ROUTE = pb.QueryRouteRequest(topic=T)
SEND = pb.SendMessageRequest(
    messages=[
        pb.Message(
            topic=T,
            body=b"x",
            system_properties=pb.SystemProperties(message_id="01" + "AB" * 16, message_type=pb.NORMAL),
        )
    ]
)
PRODUCER = pb.TelemetryCommand(settings=pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[T])))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with RocketMQServer(PROPERTIES) as mq:
        found = Cluster(mq)
        yield found
        found.close()


@asynccontextmanager
async def proxy(cluster: Cluster, inner: str = "") -> AsyncIterator[grpc.aio.Channel]:
    config = ProxyConfig(
        grpc_server_port=0,
        tls_test_mode_enable=False,
        namesrv_addr=cluster.namesrv,
        authentication_enabled=True,
        authorization_enabled=True,
        inner_client_authentication_credentials=inner or PROPERTIES["innerClientAuthenticationCredentials"],
        user_cache_refresh_seconds=1,
    )
    async with (
        running(cluster_port(config, "proxy", LOOPBACK)) as port,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{port.port}") as channel,
    ):
        yield channel


async def code_of(channel: grpc.aio.Channel, name: str, request: object, metadata: object) -> int:
    return int((await method(channel, name)(request, metadata)).status.code)


async def test_calls_are_checked_by_the_users_and_policies_of_the_brokers(cluster: Cluster):
    await asyncio.to_thread(cluster.clear)
    async with proxy(cluster) as channel:
        for name, request in (("QueryRoute", ROUTE), ("SendMessage", SEND)):
            assert await code_of(channel, name, request, METADATA) == pb.UNAUTHORIZED
            assert await code_of(channel, name, request, signed((JOE[0], "guess"))) == pb.UNAUTHORIZED
            reply = await method(channel, name)(request, signed(JOE))
            assert reply.status.code == pb.FORBIDDEN
            assert f"mqadmin createAcl -c DefaultCluster -s User:joe -r Topic:{TOPIC} -a Pub" in reply.status.message
        await asyncio.to_thread(cluster.allow, (f"Topic:{TOPIC}", "Pub"))
        async with asyncio.timeout(LIMIT_S):
            while await code_of(channel, "SendMessage", SEND, signed(JOE)) != pb.OK:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.05)


async def test_a_stream_ends_when_its_user_loses_the_right(cluster: Cluster):
    await asyncio.to_thread(cluster.clear)
    await asyncio.to_thread(cluster.allow, (f"Topic:{TOPIC}", "Pub"))

    async with proxy(cluster) as channel:
        stream = method(channel, "Telemetry")(None, signed(JOE))
        await stream.write(PRODUCER)
        assert (await stream.read()).HasField("settings")
        await asyncio.to_thread(cluster.clear)
        last = await stream.read()
        assert last.status.code == pb.FORBIDDEN
        assert await stream.read() is grpc.aio.EOF


async def test_without_the_inner_credentials_of_the_brokers_calls_are_refused_with_the_reason(cluster: Cluster):
    other = json.dumps({"accessKey": "inner", "secretKey": "another"})
    async with proxy(cluster, other) as channel:
        reply = await method(channel, "QueryRoute")(ROUTE, signed(JOE))
    assert reply.status.code == pb.INTERNAL_SERVER_ERROR
    assert "users and policies are not known yet" in reply.status.message
    assert "User:inner: check signature failed" in reply.status.message
