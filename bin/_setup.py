"""Make the checkout's `.venv` hold what requirements/LEVEL.txt pins. Standard library only; called by bin/_env.

The files hold exact versions and hashes, so pip refuses anything else. What was installed is remembered as a copy of
the file in `.venv/installed`; bin/_env compares the two at every start.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
INSTALLED = VENV / "installed"
REQUIREMENTS = ROOT / "requirements"

# Each level's file also pins all of the levels before it.
LEVELS = {
    "core": "the broker's packages",
    "analytics": "the broker's packages and PySpark (about 500 MB: some minutes)",
    "dev": "the packages of the broker, PySpark and the development tools (about 500 MB: some minutes)",
}
BUILD = "build"
FIRST_VERSION = (3, 11)


class SetupError(Exception):
    """The environment could not be made; the message says what to do."""


def is_installed(level: str) -> bool:
    copy, pins = INSTALLED / f"{level}.txt", REQUIREMENTS / f"{level}.txt"
    return copy.exists() and copy.read_bytes() == pins.read_bytes()


def say(text: str) -> None:
    print(f"rocketbroker: {text}", file=sys.stderr, flush=True)


def call(what: str, *command: str | Path) -> None:
    """Run a command quietly; its output is shown when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{what} failed (exit status {done.returncode}):\n{done.stdout.strip()}")


def works(python: Path) -> bool:
    """Whether an interpreter is there, runs and is new enough (the system's Python may have been replaced)."""
    if not python.exists():
        return False
    code = f"import sys, venv; sys.exit(sys.version_info < {FIRST_VERSION})"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def make_venv() -> None:
    if not works(PYTHON):
        say(f"making .venv with Python {'.'.join(map(str, sys.version_info[:3]))}")
        call(
            "python -m venv (on Debian and Ubuntu the package python3-venv provides it)",
            sys.executable, "-m", "venv", "--clear", VENV,
        )  # fmt: skip
    elif subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
        call("python -m ensurepip", PYTHON, "-m", "ensurepip", "--upgrade")
    INSTALLED.mkdir(exist_ok=True)


def install(level: str, *options: str) -> None:
    call(
        f"installing requirements/{level}.txt",
        PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", *options,
        "--requirement", REQUIREMENTS / f"{level}.txt",
    )  # fmt: skip


def contained(level: str) -> list[str]:
    names = list(LEVELS)
    return names[: names.index(level) + 1]


def forget(level: str) -> None:
    """Drop the records first: an installation that fails half-way must not pass for the one before it."""
    for name in contained(level):
        (INSTALLED / f"{name}.txt").unlink(missing_ok=True)


def remember(level: str) -> None:
    """Record the level and those it contains, by rename, so that a reader never sees half a file."""
    for name in contained(level):
        part = INSTALLED / f"{name}.part"
        shutil.copyfile(REQUIREMENTS / f"{name}.txt", part)
        part.replace(INSTALLED / f"{name}.txt")


def widest_wanted(level: str) -> str:
    """The level to install: a wider one that was here before stays whole when pins have changed."""
    names = list(LEVELS)
    present = [name for name in names if (INSTALLED / f"{name}.txt").exists()]
    return max([level, *present], key=names.index)


def set_up(level: str) -> None:
    make_venv()
    level = widest_wanted(level)
    say(f"installing {LEVELS[level]} into .venv")
    forget(level)
    if level == "core":
        install(level)
    else:  # pyspark comes as source: pinned tools that are already there build it, so that pip fetches no others
        install(BUILD)
        install(level, "--no-build-isolation")
    remember(level)


def main(level: str) -> int:
    if level not in LEVELS:
        raise SystemExit(f"rocketbroker: no such level {level!r}, there are {', '.join(LEVELS)}")
    lock = os.open(REQUIREMENTS, os.O_RDONLY)  # commands started at the same moment wait here; freed when we end
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        if not (works(PYTHON) and is_installed(level)):
            set_up(level)
    except (SetupError, OSError) as error:
        say(f"set-up failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
