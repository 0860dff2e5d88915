"""Completion of mqadmin by the shells themselves, with the script that ``mqadmin --install-completion`` gives them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketbroker.app.mqadmin.index import SUMMARIES

LIMIT_S = 60
# How each shell checks a script without running it, and prints what it would offer after `mqadmin `.
# What zsh calls for a list of words and their descriptions is replaced by a function that reads the list as it does.
CHECK = {"bash": "-n", "zsh": "-n", "fish": "--no-execute"}
OFFER = {
    "bash": """source "$1"; COMP_WORDS=(mqadmin ""); COMP_CWORD=1; _mqadmin_completion mqadmin
        printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """compdef() {}
        _arguments() { local action=${1#*: :}; eval "words=( ${action[3,-3]} )"; print -rl -- $words }
        source "$1"; words=(mqadmin ""); CURRENT=2; _mqadmin_completion""",
    "fish": """source $argv[1]; complete --do-complete "mqadmin " """,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the command ``mqadmin``."""
    command = tmp_path / "mqadmin"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocketbroker.app.mqadmin.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_offers_sub_commands(home: Path, shell: str):
    if shutil.which(shell) is None:
        pytest.skip(f"needs-shells: {shell} not found (Debian and Ubuntu: apt-get install {shell})")
    variables = {**os.environ, "PATH": f"{home}:{os.environ['PATH']}", "HOME": str(home)}

    def run(*command: str, **more: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=LIMIT_S, env=variables | more, cwd=home
        )
        assert done.stderr == ""
        return done.stdout

    script = home / "completion"
    script.write_text(run("mqadmin", _MQADMIN_COMPLETE=f"source_{shell}"))
    assert run(shell, CHECK[shell], str(script)) == ""

    name = () if shell == "fish" else (shell,)
    # zsh and fish get a description after each name.
    offered = {re.split(r"[\t:]", line)[0] for line in run(shell, "-c", OFFER[shell], *name, str(script)).splitlines()}
    assert offered >= {command for group in SUMMARIES.values() for command in group}
