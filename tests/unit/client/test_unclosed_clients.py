"""Clients and servers that are not closed: a ResourceWarning names each."""

import subprocess
import sys

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import NameServerError

CLIENTS = """
import asyncio
from rocketbroker.client import *

WHERE = "127.0.0.1:1"

async def main():
    clients = [
        Producer("PG", WHERE),
        TransactionProducer("PG", WHERE, check=print),
        PushConsumer("CG", WHERE, handler=print),
        LitePullConsumer("CG", WHERE),
        PullConsumer("CG", WHERE),
        ClientInstance(WHERE),
    ]
"""
NAMES = ["ClientInstance", "LitePullConsumer", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]


def unclosed(program: str) -> list[str]:
    """Run a program; return the classes that warnings name."""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if "ResourceWarning: " in line]
    texts = [line.partition("ResourceWarning: ")[2] for line in lines]
    return sorted(text.split(" was not closed; use it within")[0] for text in texts if not text.startswith("Enable"))


def test_each_client_that_was_not_closed_is_named_once():
    program = f"{CLIENTS}\n    for client in clients: await client.start()\nasyncio.run(main())"
    assert unclosed(program) == NAMES


def test_clients_that_were_closed_or_not_started_are_not():
    program = (
        f"{CLIENTS}\n    for client in clients[::2]:\n        await client.start()\n"
        "        await (client.stop() if isinstance(client, ClientInstance) else client.close())\nasyncio.run(main())"
    )
    assert unclosed(program) == []


async def test_an_admin_client_that_was_used_is_named():
    admin = AdminClient("127.0.0.1:1")
    with pytest.raises(NameServerError):
        await admin.fetch_all_topic_list()
    with pytest.warns(ResourceWarning, match="AdminClient was not closed"):
        admin.warn_if_open()
    await admin.close()
    admin.warn_if_open()


def test_a_server_for_tests_that_was_not_left_is_named():
    program = "from rocketbroker.testing import RocketMQServer\nserver = RocketMQServer()\nserver.__enter__()"
    assert unclosed(program) == ["RocketMQServer"]
