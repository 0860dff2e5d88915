"""The fixtures of the pytest plugin, in runs of pytest of their own."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = "rocketbroker.testing.pytest_plugin"

TESTS = """
import asyncio
from rocketbroker.client import Message, Producer

seen = []

def test_with_a_server(rocketmq, rocketmq_topic):
    async def send():
        async with Producer("shop", rocketmq.namesrv_addr) as producer:
            await producer.send(Message(rocketmq_topic, b"order"))
    asyncio.run(send())
    rocketmq.assert_messages(rocketmq_topic, [b"order"])
    seen.append(rocketmq)

async def test_with_a_producer(rocketmq, rocketmq_producer, rocketmq_topic):
    await rocketmq_producer.send(Message(rocketmq_topic, b"order"))
    rocketmq.assert_messages(rocketmq_topic, [b"order"])
    seen.append(rocketmq)

def test_the_scope(rocketmq):
    assert len({id(server) for server in [*seen, rocketmq]}) == SERVERS
"""


def run(folder: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *options, str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
    )
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("scope", "servers"), [("function", 3), ("module", 1), ("session", 1)])
def test_the_server_lives_as_long_as_its_scope(tmp_path: Path, scope: str, servers: int):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nasyncio_mode = auto\nrocketmq_scope = {scope}\n")
    (tmp_path / "test_orders.py").write_text(TESTS.replace("SERVERS", str(servers)))
    assert "3 passed" in run(tmp_path)


@pytest.mark.long
def test_workers_of_xdist_have_servers_of_their_own(tmp_path: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nrocketmq_scope = session\n")
    for number in range(2):
        (tmp_path / f"test_orders_{number}.py").write_text(TESTS.replace("SERVERS", "1"))
    assert "6 passed" in run(tmp_path, "-n", "2", "--dist", "loadfile")


GRPC = """
from tests.support.grpc_calls import send_once

def test_the_endpoints(rocketmq):
    assert send_once(rocketmq.endpoints, "Unknown", b"") == CODE
"""


@pytest.mark.long
def test_a_server_serves_the_sdks_if_it_is_asked_to(tmp_path: Path):
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from rocketbroker.proxy.messaging_pb2 import Code

    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\nrocketmq_grpc = true\n")
    (tmp_path / "test_orders.py").write_text(GRPC.replace("CODE", str(Code.MESSAGE_BODY_EMPTY)))
    assert "1 passed" in run(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_orders.py").write_text("def test_it(rocketmq): assert rocketmq.endpoints == ''\n")
    assert "1 passed" in run(tmp_path)


def test_an_unknown_scope_is_explained(tmp_path: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nrocketmq_scope = package\n")
    (tmp_path / "test_orders.py").write_text("def test_one(rocketmq): pass\n")
    printed = run(tmp_path)
    assert printed.strip() == "ERROR: rocketmq_scope=package is unknown; give one of function, module, session"


SHARED = """
import asyncio
import pytest
from rocketbroker.client import Message, Producer

@pytest.mark.parametrize("number", range(3))
def test_with_a_server(rocketmq, number):
    assert len(rocketmq.messages("Orders")) == (0 if RESET else number)
    rocketmq.clock.advance(3600)
    async def send():
        async with Producer("shop", rocketmq.namesrv_addr) as producer:
            await producer.send(Message("Orders", b"order"))
    asyncio.run(send())
    rocketmq.assert_messages("Orders", [b"order"] * (1 if RESET else number + 1))
"""


@pytest.mark.long
@pytest.mark.parametrize("scope", ["module", "session"])
@pytest.mark.parametrize("reset", [True, False])
def test_a_shared_server_is_reset_before_each_test(tmp_path: Path, scope: str, *, reset: bool):
    option = "" if reset else "rocketmq_reset = false\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nrocketmq_scope = {scope}\n{option}")
    for number in range(2 if scope == "module" else 1):
        (tmp_path / f"test_orders_{number}.py").write_text(SHARED.replace("RESET", str(reset)))
    assert f"{6 if scope == 'module' else 3} passed" in run(tmp_path, "-p", "no:asyncio")


def test_pytest_finds_the_plugin_of_an_installed_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"rocketbroker": PLUGIN}


def test_a_run_without_the_fixtures_loads_no_broker(tmp_path: Path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_it(): assert 'rocketbroker.app.broker_controller' not in sys.modules\n"
    )
    assert "1 passed" in run(tmp_path)
