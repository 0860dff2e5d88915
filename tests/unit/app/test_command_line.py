"""Habits of all commands: help, version, suggestions and shell completion."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from rocketbroker import __version__
from rocketbroker.app.command_line import run_app

MODULES = {
    "mqadmin": "app.mqadmin.cli",
    "mqanalytics": "app.mqanalytics.cli",
    "mqbroker": "app.broker_startup",
    "mqdev": "testing.mqdev",
    "mqnamesrv": "app.namesrv_startup",
    "mqstore": "app.mqstore.cli",
}
LATE = ("numpy", "aiohttp", "rocketbroker.store", "pyspark", "pyarrow")


def app_of(name: str) -> typer.Typer:
    app: typer.Typer = import_module(f"rocketbroker.{MODULES[name]}").app
    return app


def commands(name: str) -> Iterator[tuple[str, Any]]:
    """The command and all of its sub-commands."""

    def below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield path, command
        for each in getattr(command, "commands", {}):
            with command.make_context(name, [], resilient_parsing=True) as context:
                yield from below(f"{path} {each}", command.resolve_command(context, [each])[1])

    yield from below(name, get_command(app_of(name)))


@pytest.mark.parametrize("name", MODULES)
def test_version_is_shown(name: str):
    said = CliRunner().invoke(app_of(name), ["--version"], prog_name=name)

    assert (said.exit_code, said.stdout) == (0, f"{name} {__version__}\n")


def run_with_output(redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its output."""
    words = [sys.executable, "-m", "rocketbroker.app.mqadmin.cli", "--version"]
    script = f'exec "$@" {redirection}'
    return subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device without space")
def test_output_that_cannot_be_written_is_one_line():
    done = run_with_output(">/dev/full")
    assert (done.returncode, done.stderr) == (1, "mqadmin: the output cannot be written: No space left on device\n")


def test_closed_output_goes_nowhere():
    done = run_with_output("<&- >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), OSError(28, "No space", "/data/part")])
def test_an_error_of_another_file_stays_one(error: OSError):
    def fail(**_options: Any) -> None:
        raise error

    with pytest.raises(OSError, match=error.strerror):
        run_app(fail, "mqadmin")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODULES)
def test_each_option_says_what_it_does_and_what_it_takes(name: str):
    for path, command in commands(name):
        assert command.help, path
        for each in command.params:
            assert each.help, (path, each.name)


def test_help_fits_a_terminal_of_40_columns():
    for words in (["-h"], ["why", "-h"], ["export", "-h"]):
        shown = CliRunner().invoke(app_of("mqadmin"), words, env={"COLUMNS": "40"}).stdout
        assert [line for line in shown.splitlines() if len(line) > 40] == []


def test_an_argument_is_named_by_its_metavar():
    shown = CliRunner().invoke(app_of("mqadmin"), ["export", "-h"]).stdout
    assert "mqadmin export [OPTIONS] TOPIC...\n" in shown.replace("root", "mqadmin")
    assert "  TOPIC...  Topics to export.  [required]" in shown


@pytest.mark.parametrize(
    ("name", "mistyped", "right"),
    [
        ("mqadmin", ["topiclist"], "'topicList'"),
        ("mqadmin", ["help", "consumerprogress"], "'consumerProgress'"),
        ("mqstore", ["chekc"], "'check'"),
        ("mqstore", ["dump", "lgo"], "'log'"),
        ("mqanalytics", ["trafic"], "'traffic'"),
    ],
)
def test_a_mistyped_sub_command_is_answered_with_the_nearest(name: str, mistyped: list[str], right: str):
    said = CliRunner().invoke(app_of(name), mistyped)

    assert said.exit_code == 2
    assert f"No such command '{mistyped[-1]}'. Did you mean {right}" in said.stderr


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("mqadmin", "mqadmin topicS", ["topicStatus"]),
        ("mqadmin", "mqadmin topicStatus --to", ["--topic"]),
        ("mqstore", "mqstore dump ch", ["checkpoint"]),
        ("mqanalytics", "mqanalytics co", ["compact", "compare", "count"]),
        ("mqdev", "mqdev --bro", ["--broker-port"]),
    ],
)
def test_shell_completion_offers_names_and_imports_little(name: str, words: str, expected: list[str]):
    code = (
        f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        f"from rocketbroker.{MODULES[name]} import main; main()"
    )
    environment = os.environ | {
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert sorted(found.stdout.split()) == expected
    loaded = set(found.stderr.split())
    if len(words.split()) == 2:
        assert [module for module in LATE if module in loaded] == []
