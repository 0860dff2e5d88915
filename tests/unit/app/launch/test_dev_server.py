"""A broker that is stopped and started again, and the settings it takes."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import DevBroker, DevServer, StoreFolder, broker_settings, disk_use
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.config.hosts import local_address
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import ConfigError
from tests.support.ports import LOOPBACK, free_ports
from tests.support.running import running


def test_a_temporary_folder_is_removed_and_can_be_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = StoreFolder(None)
    for _ in range(2):
        folder.create()
        assert folder.path.parent == tmp_path
        folder.remove()
        folder.remove()
        assert list(tmp_path.iterdir()) == []
    assert not folder.is_kept


def test_a_given_folder_is_kept_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = StoreFolder(Path("deep/store"))
    for _ in range(2):
        folder.create()
        folder.remove()
    assert folder.path == tmp_path / "deep" / "store"
    assert folder.path.is_dir()
    assert folder.is_kept


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot create the folder .*/file/store"):
        StoreFolder(tmp_path / "file" / "store").create()


async def test_a_restart_keeps_the_ports(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, ""))
    addresses = []
    for _ in range(2):
        await broker.start()
        addresses.append(broker.address)
        assert broker.is_running
        assert broker.controller.address == broker.address
        await broker.stop()
    assert addresses[0] == addresses[1]
    assert not broker.is_running


def listeners(*ports: int) -> Iterator[socket.socket]:
    """Listen on those ports that are free, as another process may at any time."""
    for port in ports:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((LOOPBACK, port))
            other.listen()
        except OSError:
            other.close()
        else:
            yield other


async def test_free_ports_are_the_brokers_own_before_it_listens(tmp_path: Path):
    taken: list[socket.socket] = []

    def bind(settings: BrokerSettings) -> BrokerController:
        controller = BrokerController.bind(settings)
        taken.extend(listeners(controller.port, controller.port - 2, controller.port + 1))
        return controller

    broker = DevBroker(broker_settings(0, tmp_path, ""), bind)
    try:
        await broker.start()
        assert taken == []
    finally:
        for each in taken:
            each.close()
        await broker.stop()


async def test_a_stopped_broker_keeps_its_ports_for_the_next_start(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, ""))
    await broker.start()
    port = broker.settings.transport.listen_port
    await broker.stop(keep_ports=True)
    for each in (port, port - 2):
        with socket.socket() as client:
            assert client.connect_ex((LOOPBACK, each)) != 0
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, each))
    # The port for slaves is another process's meanwhile.
    others = list(listeners(port + 1))
    try:
        await broker.start()
        assert broker.settings.transport.listen_port == port
        await broker.stop()
    finally:
        for other in others:
            other.close()
    with socket.create_server((LOOPBACK, port)):
        pass


async def test_a_stopped_broker_has_no_parts(tmp_path: Path):
    broker = DevBroker(broker_settings(0, tmp_path, "", name="broker-b"))
    await broker.stop()
    with pytest.raises(ConfigError, match="broker broker-b is not running; start it first"):
        _ = broker.controller
    assert broker.disk_full == ""


def test_properties_are_checked(tmp_path: Path):
    settings = broker_settings(0, tmp_path, "", properties={"flushDiskType": "SYNC_FLUSH", "maxMessageSize": "1000"})
    assert (settings.store.flush_disk_type, settings.store.max_message_size) == ("SYNC_FLUSH", 1000)
    with pytest.raises(ConfigError, match="did you mean flushDiskType"):
        broker_settings(0, tmp_path, "", properties={"flushDiskTyp": "SYNC_FLUSH"})
    with pytest.raises(ConfigError, match="brokerName is set by the server itself"):
        broker_settings(0, tmp_path, "", properties={"brokerName": "x"})


def test_a_disk_has_the_given_use():
    assert disk_use(99).used / disk_use(99).capacity == 0.99


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of one test."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def leave_store(store: Path, into: Path) -> None:
    """Make the folder of a killed mqdev by the marker of a running one."""
    into.mkdir()
    shutil.copy2(store / "mqdev.lock", into)
    for folder in ("commitlog", "config"):
        (into / folder).mkdir()
        (into / folder / "file").write_text("of the store")


def entries(folder: Path) -> list[Path]:
    """Return the content of a folder."""
    return list(folder.iterdir())


async def test_the_broker_is_registered_when_it_is_started(temp: Path):
    async with running(DevServer(0, 0)) as server:
        assert [server.store] == entries(temp)
        async with AdminClient(server.namesrv_addr) as admin:
            assert await admin.fetch_master_addresses("DefaultCluster") == {"broker-a": server.broker_addr}
    assert entries(temp) == []


async def test_the_store_of_a_killed_one_is_removed_and_no_other_folder(temp: Path):
    running, next_one = DevServer(0, 0), DevServer(0, 0)
    mine, foreign, empty = temp / "mqdev-notes", temp / "mqdev-other", temp / "mqdev-empty"
    for folder in (mine, foreign, empty):
        folder.mkdir()
    (mine / "notes.txt").write_text("keep me")
    (foreign / "mqdev.lock").write_text("of another program")
    (temp / "mqdev-link").symlink_to(mine)
    try:
        await running.start()
        kept = {running.store, mine, foreign, empty, temp / "mqdev-link"}
        leave_store(running.store, temp / "mqdev-killed")

        await next_one.start()
        assert set(entries(temp)) == kept | {next_one.store}

        await next_one.stop()
        assert set(entries(temp)) == kept
    finally:
        await next_one.stop()
        await running.stop()
    assert set(entries(temp)) == kept - {running.store}


@pytest.mark.parametrize(
    ("host", "advertise", "expected"),
    [(LOOPBACK, None, LOOPBACK), (LOOPBACK, "192.0.2.7", "192.0.2.7"), ("0.0.0.0", None, local_address())],
)
async def test_clients_receive_the_advertised_address(temp: Path, host: str, advertise: str | None, expected: str):
    async with running(DevServer(0, 0, host=host, advertise=advertise)) as server:
        port = server.namesrv_addr.removeprefix(f"{expected}:")
        assert server.broker_addr.startswith(f"{expected}:")
        async with AdminClient(f"{LOOPBACK}:{port}") as admin:
            assert await admin.fetch_master_addresses("DefaultCluster") == {"broker-a": server.broker_addr}


async def test_a_vip_port_in_use_is_explained(temp: Path):
    vip = free_ports(2)
    explained = rf"{LOOPBACK}:{vip}: .* Port {vip} is the VIP port of {vip + 2}"
    with socket.create_server((LOOPBACK, vip)), pytest.raises(ConfigError, match=explained):
        await DevServer(0, vip + 2).start()


async def test_a_given_folder_is_made_and_kept(temp: Path, tmp_path: Path):
    store = tmp_path / "deep" / "store"
    for _ in range(2):
        async with running(DevServer(0, 0, store)) as server:
            pass
        assert server.keeps_store
    assert {"commitlog", "abort"} & {path.name for path in entries(store)} == {"commitlog"}
    assert entries(temp) == []


async def test_a_disk_that_is_too_full_to_send_is_known_once_it_is_started(temp: Path, monkeypatch: pytest.MonkeyPatch):
    server = DevServer(0, 0)
    assert server.disk_full == ""
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 700, 700, 0, 0, 0, 0, 255)))
    async with running(server):
        assert server.disk_full == ""
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 69, 69, 0, 0, 0, 0, 255)))

    async with running(server):
        assert server.disk_full == (
            f"the disk of {server.store}/commitlog is 93.1 % full, above the limit of 90 % (diskSpaceWarningLevelRatio)"
        )
    assert entries(temp) == []


async def test_a_port_in_use_leaves_nothing_behind(temp: Path):
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        for ports in ((port, 0), (0, port)):
            with pytest.raises(ConfigError, match=str(port)):
                await DevServer(*ports).start()
            assert entries(temp) == []
