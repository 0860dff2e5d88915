"""``--check`` of the commands, and what systemd hears, with real processes."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServers
from tests.support.ports import LOOPBACK, free_ports
from tests.support.tls_files import TlsFiles


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[OurServers]:
    made = OurServers(tmp_path)
    yield made
    made.close()


def check(servers: OurServers, module: str, *arguments: str) -> tuple[int, str]:
    command = servers.command(module, *arguments, "--check")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=servers.environment())
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_the_probe_of_a_broker_tells_if_it_is_ready(servers: OurServers):
    port, namesrv_port = free_ports(-2, 1), free_ports()
    folder = servers.home / "logs"
    settings: dict[str, str | int] = {"logDir": str(folder), "logFormat": "json", "registerNameServerPeriod": 10_000}
    settings["haMasterAddress"] = f"{LOOPBACK}:1"
    broker = servers.launch_broker(f"{LOOPBACK}:{namesrv_port}", None, settings, port)
    (path,) = servers.home.glob("broker-*.properties")
    broker.wait_for(BOOTED, BOOT_LIMIT)

    code, text = check(servers, "app.broker_startup", "-c", str(path))
    assert code == 1
    reason = f"registered: at none of {LOOPBACK}:{namesrv_port}; the log says why"
    assert text == f"mqbroker: {LOOPBACK}:{port} is not ready: {reason}\n"

    namesrv = servers.namesrv(namesrv_port)
    broker.wait_until(
        lambda: check(servers, "app.broker_startup", "-c", str(path)) == (0, f"mqbroker: {LOOPBACK}:{port} is ready\n"),
        60,
        "become ready",
    )
    (namesrv_path,) = servers.home.glob("namesrv-*.properties")
    assert check(servers, "app.namesrv_startup", "-c", str(namesrv_path)) == (
        0,
        f"mqnamesrv: {LOOPBACK}:{namesrv.port} answers\n",
    )

    broker.process.terminate()
    assert broker.wait() == 0
    code, text = check(servers, "app.broker_startup", "-c", str(path))
    assert code == 1
    assert f"{LOOPBACK}:{port} does not answer: " in text
    logged = [json.loads(line)["logger"] for line in (folder / "store.log").read_text().splitlines()]
    assert logged
    assert all(name.startswith(("rocketbroker.store.", "rocketbroker.ha.")) for name in logged)
    (warning,) = (line for line in (folder / "broker.log").read_text().splitlines() if "haMasterAddress" in line)
    assert json.loads(warning)["level"] == "WARNING"


def test_the_probe_of_a_proxy_asks_its_grpc_port(servers: OurServers):
    namesrv = servers.namesrv()
    proxy = servers.proxy("-n", namesrv.address)
    (path,) = servers.home.glob("proxy-*.json")

    assert check(servers, "app.proxy_startup", "-n", namesrv.address, "-pc", str(path)) == (
        0,
        f"mqproxy: {LOOPBACK}:{proxy.port} answers\n",
    )
    namesrv_settings = servers.settings_file("other", {"listenPort": proxy.port, "bindAddress": LOOPBACK})
    code, text = check(servers, "app.namesrv_startup", "-c", str(namesrv_settings))
    assert (code, text.startswith(f"mqnamesrv: {LOOPBACK}:{proxy.port} ")) == (1, True), "it is no name server"


def test_the_probe_speaks_tls_where_the_port_demands_it(servers: OurServers, tmp_path: Path):
    files = TlsFiles(tmp_path, ["namesrv.example"])
    demands = files.of_server(mode="enforcing", need_client_auth="require", trustCertPath=str(files.ca))
    namesrv = servers.namesrv(**demands, **files.of_client())
    (path,) = servers.home.glob("namesrv-*.properties")

    assert check(servers, "app.namesrv_startup", "-c", str(path)) == (
        0,
        f"mqnamesrv: {LOOPBACK}:{namesrv.port} answers\n",
    )


def test_a_probe_needs_a_port(servers: OurServers):
    path = servers.settings_file("broker", {"listenPort": 0})

    code, text = check(servers, "app.broker_startup", "-c", str(path))

    assert code == 1
    assert text.startswith("mqbroker: --check needs the port of the server; set listenPort")


def test_systemd_hears_of_start_life_and_stop(servers: OurServers, monkeypatch: pytest.MonkeyPatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(BOOT_LIMIT)
        name = f"rocketbroker-test-{os.getpid()}"
        systemd.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        namesrv = servers.namesrv()

        assert systemd.recv(4096) == b"READY=1\nSTATUS=serving"
        assert systemd.recv(4096) == b"WATCHDOG=1"
        namesrv.process.terminate()
        assert namesrv.wait() == 0
        heard = b""
        while heard in {b"", b"WATCHDOG=1"}:
            heard = systemd.recv(4096)
        assert heard == b"STOPPING=1\nSTATUS=stopping"
