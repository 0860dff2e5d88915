"""Runs the Java driver (bench/java/Load.java) and reads what it says."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.java_toolchain import driver_classpath, find_tools

_SOURCES = Path(__file__).resolve().parent / "java"
_CLIENT_VERSION = "5.5.0"
FOUND_LIMIT_MS = 1000
_SHOWN = 2000  # characters of what a driver that failed has printed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load did. Rates are messages a second, latencies ms; a figure that a load does not have is ``None``.

    Attributes:
        found: ms until a message sent after the load was found by a pull, by its key and by its unique id.
        done: messages that were taken or delivered, warm-up included where the broker's CPU time is.
        failed: sends that were not answered by success.
        expected: messages that had to be delivered, ``None`` for loads that send.
        error: the first failure, or why there are no figures; empty when there is none.
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
        """What went wrong, in a few words; empty when nothing did."""
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
    """Fetch the jars and compile the driver, once; both are kept in the cache that the tests use.

    Raises:
        JavaError: Maven or the compiler failed.
    """
    driver_classpath("Load", _CLIENT_VERSION, _SOURCES)


def run_load(arguments: list[str], home: Path, limit: float) -> Outcome:
    """Run one load to its end, or for ``limit`` seconds; ``home`` is where the client logs to."""
    classpath = driver_classpath("Load", _CLIENT_VERSION, _SOURCES)
    command = [find_tools()["java"], "-Xms512m", "-Xmx1g", f"-Duser.home={home}", "-cp", classpath, "Load", *arguments]
    # The client would take name servers from there.
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
    """The outcome in the last line; what the client itself prints may stand before it."""
    lines = output.strip().splitlines()
    try:
        return Outcome(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        return Outcome(error=f"the load was to end with a line of JSON, and printed {output[-_SHOWN:]!r}")
