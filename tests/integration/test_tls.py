"""A cluster that talks TLS alone: clients, name server, master, slave and administration, each verified."""

import asyncio
import json
import ssl
from functools import partial
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import DevServer, broker_settings
from rocketbroker.client import ClientConfig, Message, Producer
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.certificates import CertificateAuthority
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config.proxy_config import grpc_properties
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.common.errors import RocketBrokerError
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running
from tests.support.tls_files import TlsFiles
from tests.support.waiting import until


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


def enforcing(files: TlsFiles) -> dict[str, str]:
    """Return settings with which servers talk TLS alone, and verify each other and their clients."""
    return (
        files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca)) | files.of_client()
    )


async def is_served(address: str, context: ssl.SSLContext | bool) -> bool:
    """Return true if a client can ask a name server."""
    try:
        async with AdminClient(ClientConfig(address, tls=context)) as admin:
            await admin.fetch_all_topic_list()
    except RocketBrokerError:
        return False
    return True


async def test_all_links_of_a_cluster_are_encrypted(files: TlsFiles, tmp_path: Path):
    properties = enforcing(files) | {"brokerIP2": LOOPBACK, "mappedFileSizeCommitLog": str(1 << 20)}
    async with running(DevServer(0, 0, tmp_path / "master", properties=properties)) as server:
        context = files.context("client")
        slave = broker_settings(
            0,
            tmp_path / "slave",
            server.namesrv_addr,
            properties=properties | {"brokerId": "1", "brokerRole": "SLAVE"},
        )
        async with (
            running(BrokerController.bind(slave)) as copy,
            AdminClient(ClientConfig(server.namesrv_addr, tls=context)) as admin,
        ):
            await admin.create_and_update_topic_config(server.broker_addr, TopicConfig("Encrypted", 1, 1))
            async with Producer("PG", ClientConfig(server.namesrv_addr, tls=context)) as producer:
                for number in range(20):
                    await producer.send(Message("Encrypted", b"%d" % number))
            master = server.brokers["broker-a"].controller
            await until(lambda: copy.store.commit_log.max_offset == master.store.commit_log.max_offset > 0)

        assert not await is_served(server.namesrv_addr, False)
        assert not await is_served(server.namesrv_addr, files.context())
        assert await is_served(server.namesrv_addr, files.context("client"))


async def test_a_slave_without_a_certificate_gets_no_byte(files: TlsFiles, tmp_path: Path):
    """The port for slaves demands what the others do."""
    properties = enforcing(files)
    async with running(DevServer(0, 0, tmp_path / "master", properties=properties)) as server:
        async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context("client"))) as admin:
            port = int((await admin.get_broker_config(server.broker_addr))["haListenPort"])
        for context in (None, files.context()):
            assert await answer_of(port, context) == b""


async def answer_of(port: int, context: ssl.SSLContext | None) -> bytes:
    """Return the first byte that a slave gets, empty if the connection ends before."""
    try:
        host = LOOPBACK if context else None
        reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context, server_hostname=host)
        try:
            writer.write(bytes(8))
            return await reader.read(1)
        finally:
            writer.close()
            await writer.wait_closed()
    except OSError:  # an SSLError is one
        return b""


async def test_ports_of_grpc_and_metrics_have_the_certificate_of_the_others(files: TlsFiles, tmp_path: Path):
    grpc = pytest.importorskip("grpc", reason="the extra grpc is not installed")
    aiohttp = pytest.importorskip("aiohttp", reason="the extra metrics is not installed")
    from rocketbroker.proxy.messaging_pb2 import Code
    from tests.support.grpc_calls import send_once

    metrics = free_ports()
    properties = files.of_server(mode="enforcing") | {
        **grpc_properties(0),
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": str(metrics),
    }
    async with running(DevServer(0, 0, tmp_path / "master", properties=properties)) as server:
        endpoints = server.endpoints
        async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context())) as admin:
            await admin.create_and_update_topic_config(server.broker_addr, TopicConfig("Encrypted", 1, 1))
        sent = await asyncio.to_thread(send_once, endpoints, "Encrypted", b"body", files.ca.read_bytes())
        assert sent == Code.OK
        with pytest.raises(grpc.RpcError):
            await asyncio.to_thread(send_once, endpoints, "Encrypted", b"body")
        async with aiohttp.ClientSession() as session:
            url = f"https://{LOOPBACK}:{metrics}/healthz"
            async with session.get(url, ssl=files.context()) as answer:
                assert answer.status == 200


async def test_the_grpc_port_demands_certificates_of_clients_as_the_others_do(files: TlsFiles, tmp_path: Path):
    grpc = pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from rocketbroker.proxy.messaging_pb2 import Code
    from tests.support.grpc_calls import send_once

    stranger = CertificateAuthority(SystemClock()).issue("client")
    own, authority = files.authority.issue("client"), files.ca.read_bytes()
    properties = enforcing(files) | grpc_properties(0)
    async with running(DevServer(0, 0, tmp_path / "master", properties=properties)) as server:
        async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context("client"))) as admin:
            await admin.create_and_update_topic_config(server.broker_addr, TopicConfig("Demanded", 1, 1))
        send = partial(send_once, server.endpoints, "Demanded", b"body", authority)
        assert await asyncio.to_thread(send, own) == Code.OK
        for other in (None, stranger):
            with pytest.raises(grpc.RpcError) as caught:
                await asyncio.to_thread(send, other)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_proxy_reaches_brokers_over_tls(files: TlsFiles, tmp_path: Path):
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from rocketbroker.app.grpc_port import cluster_port
    from rocketbroker.proxy.messaging_pb2 import Code
    from tests.support.grpc_calls import send_once

    async with running(DevServer(0, 0, tmp_path / "master", properties=enforcing(files))) as server:
        async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context("client"))) as admin:
            await admin.create_and_update_topic_config(server.broker_addr, TopicConfig("Relayed", 1, 1))
        given = {"grpcServerPort": 0, "tlsTestModeEnable": False, "namesrvAddr": server.namesrv_addr}
        conf = tmp_path / "rmq-proxy.json"
        conf.write_text(json.dumps(given | files.of_client()))
        async with running(cluster_port(load_proxy_settings(conf).proxy, "proxy", LOOPBACK)) as port:
            sent = await asyncio.to_thread(send_once, f"{LOOPBACK}:{port.port}", "Relayed", b"body")
        assert sent == Code.OK
