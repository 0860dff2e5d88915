"""The image's entry point and health check, run by hand as the Dockerfile gives them: no container engine is needed."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from rocketbroker.client import AdminClient
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LIMIT_S = 60.0


def words(instruction: str) -> list[str]:
    """Return the arguments of the last instruction of a kind, which are JSON."""
    found: list[str] = json.loads(re.findall(rf"{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return found


async def started(command: list[str], folder: Path, **environment: str) -> asyncio.subprocess.Process:
    """Start one of our commands from the checkout."""
    modules = {"mqdev": "rocketbroker.testing.mqdev", "mqbroker": "rocketbroker.app.broker_startup"}
    run = f"import sys; sys.argv[0] = {command[0]!r}; from {modules[command[0]]} import main; sys.exit(main())"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", run, *command[1:],
        cwd=folder, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.long
async def test_the_entry_point_serves_the_advertised_host_and_the_health_check_sees_it(tmp_path: Path):
    port = free_ports(5, 3)
    entry = [*words("^ENTRYPOINT"), *(word.replace("/var/lib/rocketbroker", str(tmp_path)) for word in words("^CMD"))]
    ports = ["--port", str(port), "--broker-port", str(port + 5)]
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort={port + 5}\n")
    check = [*words("HEALTHCHECK .* CMD"), "-c", str(conf)]
    server = await started([*entry, *ports], tmp_path, MQ_ADVERTISED_HOST="localhost")
    try:
        async with asyncio.timeout(LIMIT_S):
            assert server.stdout is not None
            while b"Ctrl-C" not in await server.stdout.readline():
                assert server.returncode is None
            health = await started(check, tmp_path)
            await health.communicate()
            assert health.returncode == 0
            async with AdminClient(f"127.0.0.1:{port}") as admin:
                assert await admin.fetch_master_addresses("DefaultCluster") == {"broker-a": f"127.0.0.1:{port + 5}"}
            server.send_signal(signal.SIGTERM)  # STOPSIGNAL
            await server.communicate()
            assert server.returncode == 0
            health = await started(check, tmp_path)
            await health.communicate()
            assert health.returncode != 0
    finally:
        if server.returncode is None:
            server.kill()
            await server.communicate()


@pytest.mark.parametrize("line", ["USER 10001", "STOPSIGNAL SIGTERM", "EXPOSE 9876 10909 10911"])
def test_the_image_runs_as_a_user_of_its_own(line: str):
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert f"\n{line}\n" in last_stage


def test_each_copied_path_is_in_the_build_context():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert source.split("/")[0] in kept
