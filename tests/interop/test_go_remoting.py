"""The official Go client of the remoting protocol (rocketmq-client-go v2) over TLS, as a user."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import ClientConfig, SessionCredentials
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.integration.test_access_control import PROPERTIES, ROOT, TOPIC
from tests.support.running import running
from tests.support.sdk_toolchain import go_remoting_command, missing_sdk
from tests.support.tls_files import TlsFiles

LIMIT_S = 120


def call(namesrv: str, secret: str) -> list[list[str]]:
    """Return the words of the lines that the client prints."""
    command = [*go_remoting_command(), namesrv, TOPIC, "16", ROOT[0], secret]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.proves("TLS, by Apache's tests", "rocketmq-client-go: sends and consumes, signed by a user")
async def test_the_go_client_sends_and_consumes(tmp_path: Path):
    if reason := missing_sdk("go"):
        pytest.skip(reason)
    files = await asyncio.to_thread(TlsFiles, tmp_path)
    properties = PROPERTIES | files.of_server(mode="enforcing") | files.of_client()
    async with running(DevServer(0, 0, tmp_path / "store", properties=properties)) as server:
        config = ClientConfig(server.namesrv_addr, tls=files.context(), credentials=SessionCredentials(*ROOT))
        async with AdminClient(config) as admin:
            await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(TOPIC, 2, 2))

        lines = await asyncio.to_thread(call, server.namesrv_addr, ROOT[1])
        refused = await asyncio.to_thread(call, server.namesrv_addr, "another-secret")

    bodies = {f"body-{number}" for number in range(16)}
    assert {body for word, body in lines[:16] if word == "SENT"} == bodies
    assert {body for word, body in lines[16:32] if word == "GOT"} == bodies
    assert lines[32:] == [["DONE"]]
    assert refused[0][0] == "REFUSED"
    assert "signature" in " ".join(refused[0])
