"""Runs of the Java driver (bench/java/Load.java) and their outcomes."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.java_toolchain import driver_classpath, find_tools

_SOURCES = Path(__file__).resolve().parent / "java"
_CLIENT_VERSION = "5.5.0"
FOUND_LIMIT_MS = 1000
_SHOWN = 2000  # last characters of the output of a failed driver


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a load. Rates are messages a second, latencies ms; a figure that the load lacks is ``None``.

    Attributes:
        found: ms until a message sent after the load is found by a pull, by key and by unique id.
        done: messages accepted or delivered, including the warm-up if the CPU time includes it.
        failed: sends without a successful answer.
        expected: messages that had to be delivered; ``None`` for loads that send.
        error: the first failure, or the reason for missing figures; otherwise empty.
    """

    rate: float | None = None
    p50: float | None = None
    p99: float | None = None
    found: float | None = None
    done: int = 0
    failed: int = 0
    expected: int | None = None
    error: str = ""

    @property
    def trouble(self) -> str:
        """The failure in a few words; empty on success."""
        if self.failed:
            return f"{self.failed} sends failed, {self.done} did not: {self.error}"
        if self.error:
            return self.error
        if self.expected is not None and self.done < self.expected:
            return f"{self.done} of {self.expected} messages were delivered"
        if self.found is not None and self.found > FOUND_LIMIT_MS:
            return f"the last message was found after {self.found:.0f} ms, not within {FOUND_LIMIT_MS}"
        if not self.done or (self.rate is None and self.p50 is None):
            return f"no figure: {self.done} messages"
        return ""


def prepare() -> None:
    """Fetch the jars and compile the driver once, into the cache that the tests use.

    Raises:
        JavaError: Maven or the compiler failed.
    """
    driver_classpath("Load", _CLIENT_VERSION, _SOURCES)


def java_command(home: Path) -> list[str]:
    """Return the command of the Java driver without the arguments of a load."""
    classpath = driver_classpath("Load", _CLIENT_VERSION, _SOURCES)
    return [find_tools()["java"], "-Xms512m", "-Xmx1g", f"-Duser.home={home}", "-cp", classpath, "Load"]


def run_load(arguments: list[str], home: Path, limit: float) -> Outcome:
    """Run one load for at most ``limit`` seconds; the client logs below ``home``."""
    command = [*java_command(home), *arguments]
    # The client would read name servers from this variable.
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, cwd=home, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the load was not done after {limit:.0f} s")
    if done.returncode != 0:
        return Outcome(error=f"the load ended with {done.returncode}: {done.stderr[-_SHOWN:].strip()}")
    return parse(done.stdout)


def parse(output: str) -> Outcome:
    """Return the outcome in the last line; the client may print other lines before it."""
    lines = output.strip().splitlines()
    try:
        return Outcome(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        return Outcome(error=f"the load was to end with a line of JSON, and printed {output[-_SHOWN:]!r}")
