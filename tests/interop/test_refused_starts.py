"""Servers that cannot start: each says why in one line, and leaves what is there as it is."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.our_servers import OurServers
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient
from tests.support.raw_requests import SUCCESS, everything, pull_fields, send_fields

SEND_V2, PULL = 310, 11


def ended(servers: OurServers, module: str, path: Path) -> str:
    """The one line that a program says when it cannot start."""
    done = subprocess.run(
        servers.command(f"app.{module}", "-c", str(path)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=servers.environment(),
        cwd=servers.home,
    )
    assert done.returncode == 1, done
    assert "boot success" not in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if " INFO " not in line]
    return line


@pytest.mark.long
@pytest.mark.parametrize("module", ["broker_startup", "namesrv_startup"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "absent.properties"),
        (b"listenPort=many\n", "listenPort"),
        (b"listenPort=70000\n", "70000"),
        (b"listenPrt=10911\n", "listenPort"),
        (b"listenPort=\\u12\n", ""),
        (b"\xff\xfe\x00\x01=\xff\n", ""),
        (b"aclEnable=true\n", "aclEnable=true is rejected"),
        (b"authorizationEnabled=true\n", "needs authenticationEnabled=true"),
        (b"authenticationEnabled=true\n", "there is no user: name the first one by initAuthenticationUser"),
        (b"tls.server.mode=enforcing\n", "tls.server.mode=enforcing needs a certificate"),
        (b"tls.server.certPath=/absent.pem\ntls.server.keyPath=/absent.key\n", "/absent.pem is no file"),
    ],
)
def test_settings_that_cannot_be_read_are_named(
    our_servers: OurServers, tmp_path: Path, module: str, text: bytes | None, named: str
):
    path = tmp_path / ("absent.properties" if text is None else "wrong.properties")
    if text is not None:
        path.write_bytes(text)
    assert named in ended(our_servers, module, path)


def test_a_slave_with_a_masters_id_is_rejected(our_servers: OurServers, tmp_path: Path):
    path = tmp_path / "role.properties"
    path.write_text(f"brokerRole=SLAVE\nstorePathRootDir={tmp_path}/store\n")
    line = ended(our_servers, "broker_startup", path)
    assert "brokerId=0 is rejected" in line
    assert not (tmp_path / "store").exists()


@pytest.mark.long
def test_a_port_in_use_is_named_and_the_store_stays_whole(our_servers: OurServers, tmp_path: Path):
    with socket.create_server(("127.0.0.1", free_ports(-2, 1))) as holder:
        port = holder.getsockname()[1]
        path = tmp_path / "port.properties"
        path.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nstorePathRootDir={tmp_path}/store\n")
        assert str(port) in ended(our_servers, "broker_startup", path)
        path.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
        assert str(port) in ended(our_servers, "namesrv_startup", path)
    assert not (tmp_path / "store" / "abort").exists(), "it stopped in order"


def test_a_store_in_use_is_rejected(our_servers: OurServers, tmp_path: Path):
    broker = our_servers.broker(our_servers.namesrv().address)
    with RawClient(broker.address) as client:
        assert client.ask(SEND_V2, send_fields("Bystander"), b"safe").code == SUCCESS
        before = everything(broker.store)
        path = tmp_path / "store.properties"
        path.write_text(
            f"listenPort={free_ports(-2, 1)}\nbindAddress=127.0.0.1\nstorePathRootDir={broker.store}\n"
            "mappedFileSizeCommitLog=16777216\n"
        )
        assert str(broker.store) in ended(our_servers, "broker_startup", path)
        assert everything(broker.store) == before
        found = client.ask(PULL, pull_fields("Bystander"), opaque=2)
        assert (found.code, b"safe" in found.body) == (SUCCESS, True), "the one that has it goes on"
        assert client.ask(SEND_V2, send_fields("Bystander"), b"again", opaque=3).code == SUCCESS
