"""Dependencies of the core: pyproject.toml, pins and manual agree, and servers start with nothing else."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
INSTALL = (ROOT / "docs" / "start" / "install.md").read_text()

# Everything that is installed and that core.txt does not pin cannot be imported.
CORE_ONLY = """
import re, sys
from importlib.metadata import packages_distributions
from pathlib import Path

def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()

pinned = {plain(name) for name in re.findall(r"^([\\w.-]+)==", Path("requirements/core.txt").read_text(), re.MULTILINE)}
for module, distributions in packages_distributions().items():
    if not pinned & {plain(name) for name in distributions}:
        sys.modules.setdefault(module, None)
assert sys.modules["aiohttp"] is sys.modules["zstandard"] is sys.modules["lz4"] is None
"""
SERVE = """
import asyncio
from pathlib import Path
from rocketbroker.client import Message, MessageSelector, Producer, PushConsumer, SyncClient
from rocketbroker.testing import RocketMQServer

with RocketMQServer({"enablePropertyFilter": "true"}) as mq, SyncClient() as sync:
    producer = sync.open(Producer("shop", mq.namesrv_addr))
    consumer = sync.open(PushConsumer("billing", mq.namesrv_addr))
    sync.call(consumer.subscribe("Orders", MessageSelector.by_sql("n > 5")))
    for n in (1, 7):
        sync.call(producer.send(Message("Orders", b"order %d " % n * 1000, keys="k", properties={"n": str(n)})))
    for message in sync.messages(consumer):
        print(message.body[:7].decode())
        break
    mq.restart_broker()
"""
COMMANDS = """
import importlib
for module in MODULES:
    importlib.import_module(module)
print("imported")
"""


def plain(requirement: str) -> str:
    """Return the name of a requirement."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pinned(level: str) -> set[str]:
    text = (ROOT / "requirements" / f"{level}.txt").read_text()
    return {plain(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CORE_ONLY + script],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env={"PYTHONPATH": "src"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_servers_and_clients_need_the_core_alone():
    assert run(SERVE) == "order 7\n"


def test_commands_need_the_core_alone():
    modules = [target.partition(":")[0] for name, target in PROJECT["scripts"].items() if name != "mqanalytics"]

    assert run(COMMANDS.replace("MODULES", repr(modules))) == "imported\n"


def test_the_pinned_core_has_what_it_needs_and_no_extra():
    core = {plain(each) for each in PROJECT["dependencies"]}
    extra = {plain(each) for of in EXTRAS.values() for each in of}

    assert core <= pinned("core")
    assert extra & pinned("core") == set()
    assert core | extra <= pinned("dev"), "tests use all of them"


@pytest.mark.parametrize(("level", "extras"), [("grpc", ["grpc"]), ("analytics", ["analytics", "grpc"])])
def test_the_pins_of_a_level_have_what_its_extras_need(level: str, extras: list[str]):
    needed = {plain(each) for extra in extras for each in EXTRAS[extra]}

    assert needed <= pinned(level), "run bin/_lock"


def test_the_pins_of_the_image_have_what_the_package_is_built_with():
    assert {plain(each) for each in PYPROJECT["build-system"]["requires"]} <= pinned("image"), "run bin/_lock"


def rows(heading: str) -> dict[str, str]:
    """Return the first two cells of the table below a heading of the page about installation."""
    section = INSTALL.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.-]+)` \| ([^|]+) \|", section, re.MULTILINE))


def test_the_manual_says_what_each_package_of_the_core_is_for():
    assert set(rows("What is installed")) == {plain(each) for each in PROJECT["dependencies"]}


def test_the_manual_names_each_extra_with_its_packages():
    documented = rows("Extras")

    assert set(documented) == set(EXTRAS)
    for name, requirements in EXTRAS.items():
        assert set(re.findall(r"`([\w.-]+)`", documented[name])) == {plain(each) for each in requirements}, name


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "connect"])
def test_what_misses_an_extra_names_it(extra: str):
    """pyspark itself names what Spark Connect lacks."""
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))

    assert f"pip install 'rocketbroker[{extra}]'" in sources


def test_the_grpc_port_names_its_extra():
    script = "try:\n    import rocketbroker.proxy\nexcept ImportError as error:\n    print(error)\n"

    assert "pip install 'rocketbroker[grpc]'" in run(script)
