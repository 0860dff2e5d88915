"""The command mqdev as a process."""

import asyncio
import os
import signal
import socket
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketbroker.app.launch.demo import TOPIC
from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import (
    ClientConfig,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SendStatus,
    SessionCredentials,
)
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import BrokerResponseError, RocketBrokerError

COMMAND = (sys.executable, "-m", "rocketbroker.testing.mqdev")
# Ready in about a second; machines that run other tests at the same time are slower.
READY_S = 60.0


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: the address of a socket has to fit below it."""
    return tmp_path_factory.mktemp("m")


@asynccontextmanager
async def started(temp: Path, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command; it is killed if it still runs at the end."""
    environment = {**os.environ, "PYTHONPATH": "src", "TMPDIR": str(temp)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*COMMAND, *args, stdout=pipe, stderr=pipe, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def stores_in(temp: Path) -> list[Path]:
    return list(temp.glob("mqdev-*"))


def bytes_in(temp: Path) -> int:
    """Return the room that stores take on the disk."""
    return sum(path.stat().st_blocks for store in stores_in(temp) for path in store.rglob("*") if path.is_file()) * 512


async def address_in(process: asyncio.subprocess.Process) -> str:
    """The name server's address, once mqdev says that it is ready."""
    return await word_after("namesrv", process)


async def word_after(first: str, process: asyncio.subprocess.Process) -> str:
    """The second word of the next line that begins with a word."""
    assert process.stdout is not None
    async with asyncio.timeout(READY_S):
        while line := (await process.stdout.readline()).decode():
            if line.strip().startswith(f"{first} "):
                return line.split()[1]
    _, err = await process.communicate()
    pytest.fail(f"mqdev ended: {err.decode()}")


@pytest.mark.parametrize("options", [(), ("--control-port", "0")])
async def test_it_serves_the_5x_sdks_too(tmp_path: Path, options: tuple[str, ...]):
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from rocketbroker.proxy.messaging_pb2 import Code
    from tests.support.grpc_calls import send_once

    async with started(tmp_path, "--ephemeral", "--grpc", *options) as process:
        namesrv, broker = await word_after("namesrv", process), await word_after("broker", process)
        endpoints = await word_after("grpc", process)
        async with AdminClient(namesrv) as admin:
            await admin.create_and_update_topic_config(broker, TopicConfig("Orders", 1, 1))
        assert await asyncio.to_thread(send_once, endpoints, "Orders", b"order") == Code.OK
        async with PullConsumer("billing", namesrv) as consumer:
            pulled = await consumer.pull(MessageQueue("Orders", "broker-a", 0), 0)
        assert [message.body for message in pulled.messages] == [b"order"]
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), READY_S)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.long
@pytest.mark.parametrize("options", [("--ephemeral",), ("--ephemeral", "--control-port", "0"), ("--store", "kept")])
async def test_it_serves_tls_beside_plain_text(tmp_path: Path, options: tuple[str, ...]):
    ports = ("--port", "0", "--broker-port", "0")
    options = tuple(str(tmp_path / option) if option == "kept" else option for option in options)
    for _ in range(2 if "--store" in options else 1):  # a kept store keeps its certificates
        async with started(tmp_path, *options, *ports, "--tls") as process:
            namesrv, authority = await word_after("namesrv", process), await word_after("tls", process)
            trusting = ssl.create_default_context(cafile=authority)
            for tls in (trusting, False):
                async with Producer("PG", ClientConfig(namesrv, tls=tls)) as producer:
                    assert (await producer.send(Message("Secured", b"x"))).send_status is SendStatus.SEND_OK
            process.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(process.communicate(), READY_S)
        assert (process.returncode, err) == (0, b"")
        assert await asyncio.to_thread(Path(authority).exists) == ("--store" in options)
    assert stores_in(tmp_path) == []


async def test_it_makes_users_and_prints_a_client_that_works(tmp_path: Path):
    async with started(tmp_path, "--ephemeral", "--acl") as process:
        namesrv, admin, secret = await address_in(process), "admin", ""
        lines: list[str] = []
        assert process.stdout is not None
        while "asyncio.run(main())" not in (line := (await process.stdout.readline()).decode()):
            lines.append(line)
            if line.strip().startswith("admin"):
                secret = line.split()[2]
        snippet = "".join(each[4:] for each in [*lines[lines.index("    import asyncio\n") :], line])
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", snippet, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await client.communicate()
        assert (client.returncode, err) == (0, b"")
        assert b"SEND_OK" in out
        config = ClientConfig(namesrv, credentials=SessionCredentials(admin, secret))
        async with AdminClient(config) as admin_client:
            (broker,) = (await admin_client.fetch_master_addresses("DefaultCluster")).values()
            await admin_client.create_and_update_topic_config(broker, TopicConfig("Made", 1, 1))
        async with Producer("PG", namesrv, retry_times_when_send_failed=0) as producer:
            with pytest.raises(RocketBrokerError, match="username cannot be null"):
                await producer.send(Message("Orders", b"of nobody"))
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), READY_S)
    assert process.returncode == 0
    assert secret.encode() not in err


@pytest.mark.parametrize(
    ("ending", "options"),
    [(signal.SIGINT, ("--port", "0", "--broker-port", "0")), (signal.SIGTERM, ("--ephemeral", "--port", "0"))],
)
async def test_it_serves_until_it_is_stopped_and_leaves_nothing(
    tmp_path: Path, ending: signal.Signals, options: tuple[str, ...]
):
    async with started(tmp_path, *options) as process:
        async with AdminClient(await address_in(process)) as admin:
            assert list(await admin.fetch_master_addresses("DefaultCluster")) == ["broker-a"]
        assert "--ephemeral" not in options or bytes_in(tmp_path) < 20 << 20
        process.send_signal(ending)
        _, err = await asyncio.wait_for(process.communicate(), READY_S)
    assert (process.returncode, err) == (0, b"")
    assert stores_in(tmp_path) == []


async def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path):
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, started(tmp_path, "--port", str(port)) as process:
        out, err = await asyncio.wait_for(process.communicate(), READY_S)
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(f"mqdev: cannot listen on 127.0.0.1:{port}: ".encode())
    assert len(err.splitlines()) == 1


async def keep_messages(store: Path, count: int) -> None:
    """Leave messages in a store, as an earlier demo does, without starting Spark for it."""
    server = DevServer(0, 0, store)
    await server.start()
    try:
        async with Producer("earlier", server.namesrv_addr) as producer:
            for _ in range(count):
                await producer.send(Message(TOPIC, b"of an earlier run"))
    finally:
        await server.stop()


async def test_settings_and_control_of_an_ephemeral_one(tmp_path: Path):
    ready = tmp_path / "ready.env"
    options = ["--ephemeral", "--control-port", "0", "--grpc", "--ready-file", str(ready)]
    options += ["--set", "maxMessageSize=100"]
    async with started(tmp_path, *options) as process:
        namesrv = await address_in(process)
        found = dict(line.split("=", 1) for line in ready.read_text().split())
        assert found["NAMESRV_ADDR"] == namesrv
        host, port = found["ENDPOINTS"].split(":")
        socket.create_connection((host, int(port)), READY_S).close()
        async with Producer("shop", namesrv, retry_times_when_send_failed=0) as producer:
            await producer.send(Message("Orders", b"order"))
            with pytest.raises(BrokerResponseError, match="maxMessageSize"):
                await producer.send(Message("Orders", bytes(200)))
        reply = await asyncio.to_thread(post, f"{found['CONTROL_URL']}/reset")
        assert reply == b"{}\n"
        async with AdminClient(namesrv) as admin:
            assert "Orders" not in await admin.fetch_all_topic_list()
        assert bytes_in(tmp_path) < 20 << 20
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), READY_S)
    assert (process.returncode, err) == (0, b"")
    assert (stores_in(tmp_path), ready.exists()) == ([], False)


def post(url: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=READY_S) as answer:
        return bytes(answer.read())


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_the_demo_agrees_with_itself_on_a_kept_store(tmp_path: Path):
    await keep_messages(tmp_path / "store", 50)
    async with started(tmp_path, "--demo", "--messages", "500", "--store", str(tmp_path / "store")) as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"Sent, received and counted agree: 500 messages, each exactly once." in out
    assert b"also counted 50 messages of earlier runs" in out


@pytest.mark.spark
async def test_the_demo_can_be_interrupted_while_spark_counts(tmp_path: Path):
    async with started(tmp_path, "--demo", "--messages", "50") as process, asyncio.timeout(200):
        assert process.stdout is not None
        while b"Spark counts" not in await process.stdout.readline():
            assert process.returncode is None
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
    assert stores_in(tmp_path) == []


async def send_and_consume(namesrv: str) -> None:
    """Send messages until a master and its slave have one, and consume them."""
    bodies: list[bytes] = []
    found: set[bytes] = set()
    async with Producer("PG", namesrv) as producer, PushConsumer("CG", namesrv) as consumer:
        status = None
        while status is not SendStatus.SEND_OK:  # slaves count once the name server knows them
            await asyncio.sleep(0.05)
            bodies.append(b"%d" % len(bodies))
            status = (await producer.send(Message("T", bodies[-1]))).send_status
        await consumer.subscribe("T")
        async for message in consumer:
            found.add(message.body)
            if len(found) == len(bodies):
                break
    assert found == set(bodies)


@pytest.mark.long
async def test_a_layout_runs_a_process_for_each_server(tmp_path: Path):
    ready = tmp_path / "ready.env"
    async with started(tmp_path, "--layout", "2m-2s-sync", "--ephemeral", "--ready-file", str(ready)) as process:
        assert process.stdout is not None
        titles, addresses = [], {}
        async with asyncio.timeout(READY_S):
            while not (line := (await process.stdout.readline()).decode()).startswith("ready: "):
                if not line.startswith("["):  # printed by a server
                    titles.append(line.split()[0])
                    addresses[titles[-1]] = line.split()[1]
        namesrv = ready.read_text().strip().removeprefix("NAMESRV_ADDR=")
        await asyncio.wait_for(send_and_consume(namesrv), READY_S)
        async with AdminClient(namesrv) as admin:
            found = await admin.fetch_broker_addresses("DefaultCluster")
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), READY_S)

    assert titles == ["namesrv", "broker-a", "broker-a-s", "broker-b", "broker-b-s", "store"]
    assert sorted(found) == sorted(addresses[title] for title in titles[1:5])
    stopped = [line.split()[0] for line in out.decode().splitlines() if not line.startswith("[")]
    assert stopped == [*reversed(titles[:5])], out.decode()
    assert (process.returncode, err.decode(), stores_in(tmp_path)) == (0, "", [])
