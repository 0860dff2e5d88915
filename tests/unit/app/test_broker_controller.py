"""The broker's parts in order: ports, what is written at the end, what a failed start leaves."""

import asyncio
import importlib
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rocketbroker.app import warm_up
from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.broker_replication import BrokerRole
from rocketbroker.app.launch.dev_server import DevServer, broker_settings
from rocketbroker.broker.offset.consumer_offset_manager import OffsetRecovery
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.common.errors import ConfigError, StoreError
from rocketbroker.common.lifecycle import TICK_S, Part
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.fakes import FakeClock
from tests.support.ports import free_ports
from tests.support.running import running, stopping
from tests.support.waiting import until


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_records_and_routes_carry_the_port_that_the_system_chose(tmp_path: Path):
    async with running(DevServer(0, 0, tmp_path)) as server, stopping(RemotingClient()) as client:
        port = port_of(server.broker_addr)
        async with Producer("PG", server.namesrv_addr, send_timeout_s=60) as producer:
            result = await producer.send(Message("T", b"x"))
        stored_at = decode_message_id(result.offset_msg_id)
        assert (stored_at.ip, stored_at.port) == (LOOPBACK, port)
        for each in (port, port - 2):
            answer = await client.invoke(f"{LOOPBACK}:{each}", request(RequestCode.GET_BROKER_CONFIG), 60)
            lines = bytes(answer.body).decode().splitlines()
            assert f"listenPort={port}" in lines
            # The next port, unless another process has it.
            assert any(line.startswith("haListenPort=") and line != "haListenPort=0" for line in lines)


async def test_modules_of_the_first_messages_are_imported_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    imported: dict[str, bool] = {}

    def noting(module: str) -> None:
        imported[module.rpartition(".")[2]] = threading.current_thread() is threading.main_thread()

    monkeypatch.setattr(warm_up, "_DELAY_S", 0)
    monkeypatch.setattr(importlib, "import_module", noting)
    warm = asyncio.Event()
    settings = broker_settings(0, tmp_path, "")
    apply_updates([settings.broker], {"enablePropertyFilter": "true"})
    async with running(BrokerController.bind(settings, when_warm=warm.set)):
        await warm.wait()

    assert imported.items() >= {
        (name, False) for name in ("index_file", "alike_messages", "append_batches", "selector_parser", "known_results")
    }


async def test_offsets_committed_while_it_stops_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""))
    await broker.start()
    stop_holding = broker.hold_service.stop

    async def commit_and_stop() -> None:
        broker.consumer_offsets.commit("G", "T", 0, 42)
        await stop_holding()

    monkeypatch.setattr(broker.hold_service, "stop", commit_and_stop)
    await broker.stop()

    table = (tmp_path / "config" / "consumerOffset.json").read_text().replace("{0:", '{"0":').replace("\t0:", '\t"0":')
    assert json.loads(table)["offsetTable"] == {"T@G": {"0": 42}}


async def test_slaves_are_served_before_the_first_request_and_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""))
    steps: list[str] = []

    def record(part: Part, step: str, text: str) -> None:
        call: Callable[[], Awaitable[None]] = getattr(part, step)

        async def recorded() -> None:
            steps.append(text)
            await call()

        monkeypatch.setattr(part, step, recorded)

    for part, name in ((broker._server, "server"), (broker.replication.service, "slaves")):
        record(part, "start", f"{name} start")
        record(part, "stop", f"{name} stop")
    async with running(broker):
        pass

    assert steps == ["slaves start", "server start", "server stop", "slaves stop"]


async def test_a_start_that_fails_gives_the_ports_back(tmp_path: Path):
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{")
    port = free_ports(-2, 1)
    broker = BrokerController.bind(broker_settings(port, tmp_path, ""))
    with pytest.raises(ConfigError, match=r"topics\.json"):
        await broker.start()
    (config / "topics.json").unlink()

    async with running(BrokerController.bind(broker_settings(port, tmp_path, ""))):
        pass


async def test_a_broker_may_register_a_host_name(tmp_path: Path):
    async with running(BrokerController.bind(broker_settings(0, tmp_path, "", advertise="localhost"))) as broker:
        assert broker.address.startswith("localhost:")


TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "timerProgress.json")
SECOND = """
import asyncio, sys
from pathlib import Path
from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.common.errors import StoreError

async def start() -> None:
    await BrokerController.bind(broker_settings(0, Path(sys.argv[1]), "")).start()

try:
    asyncio.run(start())
except StoreError as error:
    print(error)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage_tables(config: Path) -> None:
    """A start would set them aside and read their backups."""
    for name in TABLES:
        (config / f"{name}.bak").write_bytes((config / name).read_bytes())
        (config / name).write_bytes(b"{")


async def second_in_this_process(root: Path) -> str:
    broker = BrokerController.bind(broker_settings(0, root, ""))
    with pytest.raises(StoreError) as error:
        await broker.start()
    return str(error.value)


async def second_in_another_process(root: Path) -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SECOND, root, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().strip()


@pytest.mark.proves("Tables", "locked")
@pytest.mark.parametrize("second", [second_in_this_process, second_in_another_process])
async def test_a_second_broker_on_the_same_store_is_rejected_and_changes_nothing(
    tmp_path: Path, second: Callable[[Path], Awaitable[str]]
):
    first = BrokerController.bind(broker_settings(0, tmp_path, ""))
    await first.start()
    try:
        config = tmp_path / "config"
        await until(lambda: all((config / name).exists() for name in TABLES))
        damage_tables(config)
        before = contents(config)

        refused = await second(tmp_path)

        assert refused == f"{tmp_path} is in use by another broker; stop it or set storePathRootDir to another folder"
        assert contents(config) == before
    finally:
        await first.stop()


async def test_a_start_that_a_table_ends_lets_others_in_and_leaves_the_store_unclean(tmp_path: Path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{")
    (tmp_path / "abort").write_text("1")
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""))
    with pytest.raises(ConfigError, match=r"topics\.json"):
        await broker.start()

    assert (tmp_path / "abort").exists()
    (tmp_path / "config" / "topics.json").unlink()
    async with running(BrokerController.bind(broker_settings(0, tmp_path, ""))) as again:
        assert not again.store.lock.was_clean


async def test_a_start_that_ends_early_hides_no_offset_beyond_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A slave that was killed gets SIGTERM while it starts: the store is open, and its offsets are not checked yet."""
    settings = broker_settings(0, tmp_path, "", properties={"brokerId": "1", "brokerRole": "SLAVE"})
    config = settings.store.config_dir
    config.mkdir(parents=True)
    settings.store.abort_path.write_text("1")
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{"0":9}}}')
    reached = asyncio.Event()

    async def wait_for_ever(_part: OffsetRecovery) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(OffsetRecovery, "start", wait_for_ever)
        starting = asyncio.create_task(BrokerController.bind(settings).start())
        await reached.wait()
        starting.cancel()
        await asyncio.wait([starting])
    assert not settings.store.abort_path.exists(), "the store is sound and on disk, and counts as clean"

    async with running(BrokerController.bind(settings)) as broker:
        assert broker.consumer_offsets.query("G", "T", 0) == 0


async def test_delivery_stops_and_continues_with_the_role_while_the_broker_serves(tmp_path: Path):
    clock = FakeClock()
    broker = BrokerController.bind(broker_settings(0, tmp_path, ""), clock)
    await broker.start()
    client = RemotingClient()
    try:
        for body, name, value in ((b"level", "DELAY", "1"), (b"timer", "TIMER_DELAY_MS", "1")):
            properties = f"{name}\x01{value}\x02UNIQ_KEY\x01{value:0>32}\x02"
            header = SendMessageRequestHeader("PG", "T", "TBW102", 4, 0, 0, 0, 0, properties, 0)
            sent = await client.invoke(f"{LOOPBACK}:{broker.port}", request(RequestCode.SEND_MESSAGE, header, body), 60)
            assert sent.code == ResponseCode.SUCCESS
        waiting = [broker.store.queues.max_offset_in_queue(topic, 0) for topic in ("SCHEDULE_TOPIC_XXXX", TIMER_TOPIC)]
        assert waiting == [1, 1]
        await broker.parts.take_role(BrokerRole.SLAVE)
        header = SendMessageRequestHeader("PG", "T", "TBW102", 4, 0, 0, 0, 0, "", 0)
        sent = await client.invoke(f"{LOOPBACK}:{broker.port}", request(RequestCode.SEND_MESSAGE, header, b"b"), 60)
        assert (sent.code, (sent.remark or "").split()[0]) == (ResponseCode.SERVICE_NOT_AVAILABLE, "[SLAVE]")
        clock.advance(3)
        await asyncio.sleep(3 * TICK_S)
        assert broker.store.queues.max_offset_in_queue("T", 0) == 0

        await broker.parts.take_role(BrokerRole.ASYNC_MASTER)

        await until(lambda: broker.store.queues.max_offset_in_queue("T", 0) == 2)
    finally:
        await client.stop()
        await broker.stop()
