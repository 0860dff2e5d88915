"""bin/: a command makes its environment once, then only starts. In a checkout of its own with nothing to install."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROGRAM = """\
import json, os, sys

def main():
    if sys.argv[1:] == ["wait"]:
        try:
            print("waiting", flush=True)
            sys.stdin.read()
        except KeyboardInterrupt:
            return 9
    print(json.dumps([*sys.argv, os.environ["PYTHONPATH"], sys.prefix]))
    return 7
"""


def copy_checkout(folder: Path) -> Path:
    """A checkout with the real bin/, a program that shows how it was called, and requirement files without packages."""
    shutil.copytree(ROOT / "bin", folder / "bin")
    app = folder / "src" / "rocketbroker" / "app"
    app.mkdir(parents=True)
    for package in (app, app.parent):
        (package / "__init__.py").touch()
    (app / "namesrv_startup.py").write_text(PROGRAM)
    (folder / "requirements").mkdir()
    for name in ("build", "core", "analytics", "dev"):
        (folder / "requirements" / f"{name}.txt").write_text("# nothing\n")
    return folder


def without_path() -> dict[str, str]:
    """The environment without the PYTHONPATH that bin/test sets for the tests themselves."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose environment was made by two commands started at the same moment."""
    folder = copy_checkout(tmp_path_factory.mktemp("a checkout") / "root")
    command = [folder / "bin" / "mqnamesrv"]
    environ = {**without_path(), "ROCKETBROKER_PYTHON": sys.executable}
    started = [subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=200)[1] for process in started]

    assert [process.returncode for process in started] == [7, 7], said
    assert sorted(text.count("creating .venv") for text in said) == [0, 1], "one of the two makes it, the other waits"
    return folder


def call(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {**without_path(), **environ}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environ, timeout=200)


@pytest.mark.long
def test_arguments_name_and_status_reach_the_program(checkout: Path, tmp_path: Path):
    done = call(checkout / "bin" / "mqnamesrv", "-c", "a b", "", "*", cwd=tmp_path, PYTHONPATH="/given")

    paths = f"{checkout.resolve()}/src:/given", str(checkout.resolve() / ".venv")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f'["mqnamesrv", "-c", "a b", "", "*", "{paths[0]}", "{paths[1]}"]\n'


@pytest.mark.long
def test_a_command_works_from_anywhere_and_by_any_path(checkout: Path, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(checkout / "bin" / "mqnamesrv")
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    called = [
        call("bin/mqnamesrv", cwd=checkout),
        call("./mqnamesrv", cwd=checkout / "bin"),
        call("../bin/mqnamesrv", cwd=checkout / "src"),
        call(link, cwd=Path("/")),
        call("./link", cwd=tmp_path, CDPATH="/usr"),
        call("/bin/sh", "-c", "mqnamesrv", cwd=tmp_path, PATH=path),
    ]

    assert [(done.returncode, done.stderr) for done in called] == [(7, "")] * len(called)
    assert len({done.stdout for done in called}) == 1


@pytest.mark.long
def test_files_in_the_callers_directory_are_not_taken_for_modules(checkout: Path, tmp_path: Path):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")

    assert call(checkout / "bin" / "mqnamesrv", cwd=tmp_path).returncode == 7


@pytest.mark.long
def test_an_interrupt_reaches_the_program_itself(checkout: Path):
    command = [str(checkout / "bin" / "mqnamesrv"), "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 9


@pytest.mark.long
def test_changed_pins_are_installed_at_the_next_start(checkout: Path):
    pins = checkout / "requirements" / "core.txt"
    pins.write_text("# still nothing, in other words\n")

    first, second = call("bin/mqnamesrv", cwd=checkout), call("bin/mqnamesrv", cwd=checkout)

    assert (first.returncode, "installing" in first.stderr) == (7, True)
    assert (second.returncode, second.stderr) == (7, "")


@pytest.mark.long
def test_pins_that_cannot_be_installed_stop_the_command(checkout: Path):
    pins = checkout / "requirements" / "core.txt"
    before = pins.read_text()
    pins.write_text("numpy==2.0.0\n")  # without a hash, so pip refuses before it looks anywhere
    try:
        done = call("bin/mqnamesrv", cwd=checkout)
    finally:
        pins.write_text(before)

    assert (done.returncode, done.stdout) == (1, "")
    assert "set-up failed: installing requirements/core.txt failed" in done.stderr
    assert "hash" in done.stderr.lower()
    assert call("bin/mqnamesrv", cwd=checkout).returncode == 7


def test_without_a_recent_python_the_message_says_what_is_needed(tmp_path: Path):
    checkout = copy_checkout(tmp_path / "root")
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)

    done = call("bin/mqnamesrv", cwd=checkout, ROCKETBROKER_PYTHON=str(old))

    assert done.returncode == 1
    assert done.stderr.startswith(f"mqnamesrv: needs Python 3.11 or later, and found none as {old}")
    assert not (checkout / ".venv").exists()
