"""Name server and broker in one process."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from rocketbroker.app.dev_server import DevServer
from rocketbroker.client.admin_client import AdminClient
from rocketbroker.common.config.local_host import LOOPBACK, local_address
from rocketbroker.common.errors import ConfigError
from tests.support.ports import free_ports
from tests.support.running import running


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
    """What is in a folder."""
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
