"""Install the pins of requirements/LEVEL.txt into the checkout's `.venv`. Standard library only; called by bin/_env.

The files pin exact versions and hashes, so pip rejects anything else. Each installed file is copied to
`.venv/installed`; bin/_env compares the two at every start.
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

# The file of each level includes the pins of all levels before it.
LEVELS = {
    "core": "the broker's packages",
    "grpc": "the packages of the broker and of its gRPC port",
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
    """Run a command quietly; show its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{what} failed (exit status {done.returncode}):\n{done.stdout.strip()}")


def works(python: Path) -> bool:
    """Return true if an interpreter exists, runs and is new enough (the system's Python may have been replaced)."""
    if not python.exists():
        return False
    code = f"import sys, venv; sys.exit(sys.version_info < {FIRST_VERSION})"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def make_venv() -> None:
    if not works(PYTHON):
        say(f"creating .venv with Python {'.'.join(map(str, sys.version_info[:3]))}")
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
    """Delete the copies before an installation, so that one that fails half-way does not pass for complete."""
    for name in contained(level):
        (INSTALLED / f"{name}.txt").unlink(missing_ok=True)


def remember(level: str) -> None:
    """Copy the files of the level and those it contains; a rename keeps readers from seeing half a file."""
    for name in contained(level):
        part = INSTALLED / f"{name}.part"
        shutil.copyfile(REQUIREMENTS / f"{name}.txt", part)
        part.replace(INSTALLED / f"{name}.txt")


def widest_wanted(level: str) -> str:
    """Return the level to install: a wider one that is already installed is kept and updated."""
    names = list(LEVELS)
    present = [name for name in names if (INSTALLED / f"{name}.txt").exists()]
    return max([level, *present], key=names.index)


def set_up(level: str) -> None:
    make_venv()
    level = widest_wanted(level)
    say(f"installing {LEVELS[level]} into .venv")
    forget(level)
    if level in {"core", "grpc"}:
        install(level)
    else:  # pyspark is a source package: build it with the pinned tools, so that pip fetches no others
        install(BUILD)
        install(level, "--no-build-isolation")
    remember(level)


def main(level: str) -> int:
    if level not in LEVELS:
        raise SystemExit(f"rocketbroker: unknown level {level!r}; known levels: {', '.join(LEVELS)}")
    lock = os.open(REQUIREMENTS, os.O_RDONLY)  # concurrent commands wait here; released when this process ends
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
