"""A reader of the manual: saves the files that a page shows, types its commands, and compares what they print.

A page is one session in one folder. A block of Python or properties whose first line is a comment with a file name is
saved under that name, a Java class under its own. In a console block each line after ``$`` is a command, and the lines
below it are printed by it: numbers, ids and paths may differ. Servers run until the page ends. Ports are free ones.
Where the reader begins there are the folders ``conf`` of the checkout, ``lib`` and ``sdk`` with the official Java
clients of remoting and of gRPC, ``apache-store`` with a store of Apache RocketMQ, and the file ``junit.jar``. What a
page installs is there already; the page names the version that the tests have.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.support import golden_store
from tests.support.java import LIGHT
from tests.support.java_toolchain import SDK, find_tools, jars, junit_jar
from tests.support.ports import free_ports
from tests.support.sdk_toolchain import GO_SDK, NODE_SDK, SOURCES, go_sdk, node_sdk

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200
SERVERS = ("mqdev", "mqnamesrv", "mqbroker", "mqproxy")
INSTALLS = (["pip", "install"], ["npm", "install"], ["go", "get"])
# Options with which a server command ends by itself.
ENDING = {"--demo", "--check", "--version", "-h", "--help", "-p", "-m"}
COMMENT = re.compile(r"(?:#|//) ([\w.-]+\.\w+)$")
# What differs from run to run: paths of temporary files, times, hexadecimal ids, numbers.
VARIABLE = re.compile(r"/tmp/[\w./-]+|[0-9A-F]{12,}|\d[\d,.:]*(?:-\d\d-[\w.:]+)?")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


class Step(NamedTuple):
    """A command and the lines that it prints."""

    command: str
    output: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return [
        Block(*found) for found in re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def steps_of(text: str) -> list[Step]:
    """Return the commands of a console block."""
    parts = re.split(r"^ *\$ ", text, flags=re.MULTILINE)[1:]
    lines = [part.rstrip().splitlines() for part in parts]
    return [Step(first.partition("  # ")[0].strip(), tuple(rest)) for first, *rest in lines]


def pattern_of(line: str) -> str:
    """Return a regular expression for a line that is printed."""
    pieces = VARIABLE.split(line.strip())
    plain = [r"\s*".join(re.escape(word) for word in re.split(r"\s+", piece)) for piece in pieces]
    return r"[\w.,:/-]+".join(plain).replace("…", ".*")


class Session:
    """One reader of one page; ``close`` stops the servers that the page started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        broker = free_ports(-2, -1, 1)  # VIP port, name server, HA
        self._ports = {"9876": str(broker - 1), "10911": str(broker)}
        self._ports |= {port: str(free_ports(-2, 1)) for port in ("10921", "10931", "10941")}
        self._ports |= {port: str(free_ports()) for port in ("8081", "8082", "5557")}
        self._servers: list[subprocess.Popen[bytes]] = []
        self._sourced = ""  # commands that read variables for all commands below them
        self._make_commands()
        shutil.copytree(ROOT / "conf", folder / "conf")
        golden_store.unpack("clean", folder).rename(folder / "apache-store")

    def _make_commands(self) -> None:
        commands = self.folder / "commands"
        commands.mkdir()
        python = f'PYTHONPATH={ROOT}/src exec {sys.executable} "$@"'
        for name, line in {"python": python, "java": self._java()}.items():
            (commands / name).write_text(f"#!/bin/sh\n{line}\n")
            (commands / name).chmod(0o755)
        path = f"{commands}:{ROOT / 'bin'}:{os.environ['PATH']}"
        home = {"HOME": str(self.folder), "PATH": path, "ROCKETMQ_HOME": str(self.folder)}
        home["PYTEST_PLUGINS"] = "rocketbroker.testing.pytest_plugin"  # an installed package is found without it
        # Hundreds of packages, and where they come from.
        for name, place in {
            "GOCACHE": ".cache/go-build",
            "GOMODCACHE": "go/pkg/mod",
            "GOENV": ".config/go/env",
        }.items():
            home[name] = os.environ.get(name) or str(Path.home() / place)
        self._environment = {**os.environ, **home, "COLUMNS": "160"}

    def _java(self) -> str:
        if "java" not in find_tools():
            return "exit 1"
        (self.folder / "lib").symlink_to(jars("5.5.0"))
        (self.folder / "sdk").symlink_to(jars(SDK))
        (self.folder / "junit.jar").symlink_to(junit_jar())
        return f'exec {find_tools()["java"]} {" ".join(LIGHT)} -Duser.home={self.folder} "$@"'

    def read(self, page: Path) -> None:
        """Do what a page says, from its first block to its last."""
        for block in blocks_of(page):
            if block.language == "console":
                for step in steps_of(self._with_ports(block.text)):
                    self._do(step)
            elif name := file_name(block):
                (self.folder / name).write_text(self._with_ports(block.text))

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, as a reader types it."""
        return subprocess.run(
            ["bash", "-c", self._sourced + command], cwd=self.folder, env=self._environment,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def _with_ports(self, text: str) -> str:
        return re.sub("|".join(self._ports), lambda found: self._ports[found[0]], text)

    def _do(self, step: Step) -> None:
        words = shlex.split(step.command)
        if words[:2] in INSTALLS:
            self._install(words[0], words[2:])
        elif words[0] == "." and len(words) == 2:
            self._sourced += f"{step.command} || exit\n"
        elif words[0] in SERVERS and not ENDING & set(words):
            self._serve(words[0], step)
        else:
            done = self.run(step.command)
            printed = done.stdout + done.stderr
            assert done.returncode == 0, f"$ {step.command}\n{printed}"
            assert missing(step, printed) == [], f"$ {step.command}\n{printed}"

    def _install(self, tool: str, words: list[str]) -> None:
        """Check what a tool is asked for, and put it where the tool does; installing would need the network."""
        if tool == "pip":
            check_packages(words)
        elif tool == "npm":
            assert words == [NODE_SDK]
            (self.folder / "node_modules").symlink_to(node_sdk() / "node_modules")
        else:
            assert words == [GO_SDK]
            go_sdk()  # fetches and compiles the packages
            shutil.copy(SOURCES / "go" / "go.sum", self.folder)
            _, require, requirements = (SOURCES / "go" / "go.mod").read_text().partition("require ")
            with (self.folder / "go.mod").open("a") as file:
                file.write(require + requirements)

    def _serve(self, name: str, step: Step) -> None:
        command = step.command
        if name == "mqdev" and "--ephemeral" not in command:
            command += f" --port {self._ports['9876']} --broker-port {self._ports['10911']}"
            command += f" --set grpcServerPort={self._ports['8081']}" if "--grpc" in command else ""
        elif name in {"mqnamesrv", "mqbroker"}:
            port = self._ports["9876" if name == "mqnamesrv" else "10911"]
            given = re.search(r" -c (\S+)", command)
            settings = self.folder / (given[1] if given else f"{name}.conf")
            if not settings.exists() or "listenPort" not in settings.read_text():
                with settings.open("a") as file:
                    file.write(f"\nlistenPort={port}\n")
            command += "" if given else f" -c {settings}"
        log = self.folder / f"server-{len(self._servers)}.log"
        with log.open("wb") as out:
            self._servers.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self._environment, stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        wait_for_lines(step, log, self._servers[-1])

    def close(self) -> None:
        """End the servers in the reverse order and wait for them."""
        for server in reversed(self._servers):
            server.terminate()
            server.wait(LIMIT_S)


def wait_for_lines(step: Step, log: Path, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server has printed the lines that its page shows."""
    deadline = time.monotonic() + LIMIT_S
    while missing(step, log.read_text()):
        assert server.poll() is None, f"$ {step.command}\n{log.read_text()}"
        assert time.monotonic() < deadline, f"$ {step.command}\n{log.read_text()}"
        time.sleep(0.05)


def missing(step: Step, printed: str) -> list[str]:
    """Return the lines of a page that a command did not print."""
    return [line for line in step.output if line.strip() and not re.search(pattern_of(line), printed)]


def file_name(block: Block) -> str | None:
    """Return the name under which a reader saves a block, if it has one."""
    if block.language == "java":
        found = re.search(r"public class (\w+)", block.text)
        return f"{found[1]}.java" if found else None
    named = COMMENT.match(block.text.splitlines()[0])
    return named[1] if named else None


def check_packages(words: list[str]) -> None:
    """Check what pip is asked for: the checkout, with extras that it has, or packages that are here."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        name, sign, version = word.partition("==")
        if sign:
            assert importlib.metadata.version(name) == version
            continue
        found = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
        assert found, word
        assert set((found[1] or "").split(",")) - {""} <= set(extras)
