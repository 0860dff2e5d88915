"""Our proxy before a broker of Apache with access control: its users come by the lists that it answers."""

import asyncio
import json

import grpc
import pytest

from rocketbroker.app.grpc_port import cluster_port
from rocketbroker.client import ClientConfig, SessionCredentials
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.proxy import messaging_pb2 as pb
from tests.support.grpc_calls import METADATA, method, signed
from tests.support.java import Java
from tests.support.ports import LOOPBACK
from tests.support.running import running

_PACKAGE = "org.apache.rocketmq.auth"
ROOT = ("root", "root-secret")
JOE = ("joe", "joe-secret")
INNER = json.dumps({"accessKey": ROOT[0], "secretKey": ROOT[1]})


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(300)
async def test_calls_are_checked_by_the_users_of_apaches_broker(java: Java):
    namesrv = await asyncio.to_thread(java.namesrv)
    broker = await asyncio.to_thread(
        java.broker,
        namesrv.address,
        authenticationEnabled="true",
        authenticationProvider=f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",
        authenticationMetadataProvider=f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
        authorizationEnabled="true",
        authorizationProvider=f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",
        authorizationMetadataProvider=f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
        initAuthenticationUser=json.dumps({"username": ROOT[0], "password": ROOT[1]}),
        innerClientAuthenticationCredentials=INNER,
    )
    config = ClientConfig(namesrv.address, credentials=SessionCredentials(*ROOT), mq_client_api_timeout_s=30.0)
    async with AdminClient(config) as admin:
        await admin.create_and_update_topic_config(broker.address, TopicConfig("T", 1, 1))
        await admin.create_user(broker.address, UserInfo(*JOE, "Normal"))
        entry = PolicyEntryInfo("Topic:T", ["Pub"], [], "Allow")
        await admin.create_acl(broker.address, AclInfo("User:joe", [PolicyInfo("Custom", [entry])]))

    proxy = ProxyConfig(
        grpc_server_port=0,
        tls_test_mode_enable=False,
        namesrv_addr=namesrv.address,
        authentication_enabled=True,
        authorization_enabled=True,
        inner_client_authentication_credentials=INNER,
        accept_unproven_users=True,
    )
    async with (
        running(cluster_port(proxy, "proxy", LOOPBACK)) as port,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{port.port}") as channel,
    ):

        async def code_of(topic: str, metadata: object) -> int:
            request = pb.QueryRouteRequest(topic=pb.Resource(name=topic))
            return int((await method(channel, "QueryRoute")(request, metadata)).status.code)

        assert await code_of("T", METADATA) == pb.UNAUTHORIZED
        assert await code_of("T", signed((JOE[0], "guess"))) == pb.UNAUTHORIZED
        assert await code_of("Other", signed(JOE)) == pb.FORBIDDEN
        assert await code_of("T", signed(JOE)) == pb.OK
