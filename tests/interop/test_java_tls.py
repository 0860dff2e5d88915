"""The official Java client over TLS: verified by certificates of both sides, beside plain text, and turned away."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import ClientConfig
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.java import Java
from tests.support.java_lines import check_content, got
from tests.support.java_process import JavaProcess
from tests.support.running import running
from tests.support.tls_files import TlsFiles

pytestmark = pytest.mark.java


@pytest.fixture
async def files(tmp_path: Path) -> TlsFiles:
    return await asyncio.to_thread(TlsFiles, tmp_path)


def verified(files: TlsFiles) -> dict[str, str]:
    """Return properties of a client that verifies servers; by default it trusts all of them and has no certificate."""
    return files.of_client() | {"tls.test.mode.enable": "false"}


async def make_topic(server: DevServer, topic: str, files: TlsFiles) -> None:
    async with AdminClient(ClientConfig(server.namesrv_addr, tls=files.context("client"))) as admin:
        await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(topic, 2, 2))


def push(java: Java, server: DevServer, topic: str, count: int, properties: dict[str, str]) -> JavaProcess:
    arguments = (f"namesrv={server.namesrv_addr}", f"topic={topic}", f"group=CG_{topic}", f"stopAfter={count}")
    return java.start("Push", *arguments, properties=properties)


async def produce(java: Java, server: DevServer, topic: str, plan: str, properties: dict[str, str]) -> int:
    arguments = (f"namesrv={server.namesrv_addr}", f"topic={topic}", f"plan={plan}")
    return (await asyncio.to_thread(java.run, "Produce", *arguments, properties=properties)).returncode


async def check_consumed(consumer: JavaProcess, count: int) -> None:
    await asyncio.to_thread(consumer.wait_for, "DONE")
    messages = got(consumer.text())
    assert sorted(each.n for each in messages) == list(range(count))
    check_content(messages)


async def test_a_client_and_a_cluster_verify_each_other(java: Java, files: TlsFiles, tmp_path: Path):
    properties = files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca))
    async with running(DevServer(0, 0, tmp_path / "store", properties=properties | files.of_client())) as server:
        await make_topic(server, "Verified", files)
        consumer = push(java, server, "Verified", 60, verified(files))
        assert await produce(java, server, "Verified", "sync:60:1", verified(files)) == 0
        await check_consumed(consumer, 60)
        # Without a certificate, and in plain text, nobody gets in.
        no_certificate = {"tls.enable": "true"}
        assert await produce(java, server, "Verified", "sync:1:1", no_certificate) != 0
        assert await produce(java, server, "Verified", "sync:1:1", {}) != 0


async def test_clients_with_and_without_tls_use_the_same_ports(java: Java, files: TlsFiles, tmp_path: Path):
    properties = files.of_server(mode="permissive")
    async with running(DevServer(0, 0, tmp_path / "store", properties=properties)) as server:
        await make_topic(server, "Mixed", files)
        consumer = push(java, server, "Mixed", 60, {})
        assert await produce(java, server, "Mixed", "async:60:1", {"tls.enable": "true"}) == 0
        await check_consumed(consumer, 60)
