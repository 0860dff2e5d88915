"""Files for systemd, containers and Kubernetes, each checked by its own tool, and their settings by ours."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings, load_broker_settings, load_namesrv_settings

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
LOADERS: dict[str, Callable[[Path], BrokerSettings | NamesrvSettings]] = {
    "broker.conf": load_broker_settings,
    "namesrv.properties": load_namesrv_settings,
}
# Oldest release that is still maintained, and the newest that the package knows.
KUBERNETES = ("1.32", kubernetes_validate.latest_version())


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_each_unit(unit: Path, tmp_path: Path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze, of the package systemd")
    command = tmp_path / "command"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    copy = tmp_path / unit.name
    # Only the commands that are not installed here are replaced.
    copy.write_text(re.sub(r"/opt/rocketbroker/bin/\w+", str(command), unit.read_text()))

    done = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_its_command_and_waits_for_its_readiness(unit: Path):
    lines = unit.read_text().splitlines()

    assert any(line.startswith(f"ExecStart=/opt/rocketbroker/bin/{unit.stem} ") for line in lines)
    assert "Type=notify" in lines
    assert any(line.startswith("WatchdogSec=") for line in lines)


def test_hadolint_finds_nothing_in_the_dockerfile():
    hadolint = Path(sys.executable).parent / "hadolint"

    done = subprocess.run(
        [hadolint, "--failure-threshold", "info", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def dockerfile(instruction: str) -> list[str]:
    """Return the arguments of an instruction of the Dockerfile, in order."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    return re.findall(rf"^{instruction} (.+)$", text, re.MULTILINE)


def copied() -> list[Path]:
    """Return what the image is built from."""
    own = (each.split() for each in dockerfile("COPY") if not each.startswith("--from"))
    return [Path(source) for words in own for source in words[:-1]]


def test_the_dockerfile_copies_what_is_there():
    sent = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))

    for source in copied():
        assert (ROOT / source).exists(), source
        assert source.parts[0] in sent, f"{source} is left out by .dockerignore"


@pytest.mark.soak
def test_the_steps_of_the_dockerfile_make_working_commands(tmp_path: Path):
    build, root = tmp_path / "build", tmp_path / "root"
    for source in copied():
        target = build / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)

    def run(script: str, folder: Path = build) -> str:
        search = f"{tmp_path}/builder/bin:{root}/bin:{os.environ['PATH']}"
        command = ["/bin/sh", "-e", "-c", script]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, check=False, cwd=folder,
            env={**os.environ, "PATH": search},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The environment of the base image is another venv here, so that nothing is installed into that of the tests.
    venv.create(tmp_path / "builder", with_pip=True)
    for step in dockerfile("RUN")[:2]:
        run(step.replace("/opt/rocketbroker", str(root)))
    for command in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]:
        if command != "mqanalytics":  # needs an extra that the image does not have
            assert "Usage" in run(f"{command} --help", tmp_path)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_kubernetes_knows_each_field_of_the_manifests(path: Path, version: str):
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_field_would_be_found():
    document = documents(MANIFESTS[0])[-1]
    document["spec"]["replica"] = 2

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_settings_of_the_manifests_are_read_without_a_warning(path: Path, tmp_path: Path):
    maps = [each["data"] for each in documents(path) if each["kind"] == "ConfigMap"]
    assert maps
    for name, text in (item for each in maps for item in each.items()):
        file = tmp_path / name
        file.write_text(text)
        assert LOADERS[name](file).warnings == ()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_probes_and_ports_fit_the_settings(path: Path):
    found = {each["kind"]: each for each in documents(path)}
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (settings,) = found["ConfigMap"]["data"].values()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}

    assert f"listenPort={ports['remoting']}\n" in settings
    assert {each["name"]: each["port"] for each in found["Service"]["spec"]["ports"]} == ports
    grace = found["StatefulSet"]["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30)
    wait = re.search(r"shutdownWaitTimeSeconds=(\d+)", settings)
    assert wait is None or grace > int(wait[1])


def test_compose_runs_the_image_of_the_dockerfile():
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["rocketmq"]
    exposed = re.findall(r"^EXPOSE (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[-1].split()

    assert service["build"] == "."
    assert [port.rpartition(":")[2] for port in service["ports"]] == exposed
    assert "healthcheck" not in service, "that of the image counts: mqbroker --check"
