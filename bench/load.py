"""Loads of the comparison, and their runs by the Java driver (bench/java/Load.java)."""

import json
import os
import subprocess
from collections.abc import Sequence
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


DRAIN_MOST = 400_000  # messages
DRAIN_LIMIT = 60  # seconds
SQL92_MOST = 4_000_000  # messages
_SQL92_EVERY = 100
# Default loads under SYNC_FLUSH, where each answer waits for the disk.
SYNC_FLUSH_LOADS = "sync64,sync1"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load.

    Attributes:
        name: name of the load in ``--only``.
        shows: description for ``--help`` and the manual.
        arguments: arguments of ``java/Load.java`` after the name server, with fields ``{seconds}`` and ``{messages}``.
        reads: the load whose messages it reads; empty for a load that sends.
        most: the most messages that it reads.
        properties: broker properties that it needs, as ``KEY=VALUE``.
    """

    name: str
    shows: str
    load: str
    arguments: tuple[str, ...]
    reads: str = ""
    most: int = DRAIN_MOST
    properties: tuple[str, ...] = ()

    def command(self, namesrv: str, seconds: int, messages: int) -> list[str]:
        """Return the arguments of ``Load``; ``messages`` is the number of messages in the topic that a drain reads."""
        filled = [word.format(seconds=seconds, messages=min(messages, self.most)) for word in self.arguments]
        return [self.load, namesrv, *filled]


def _send(name: str, shows: str, topic: str, threads: int, size: int, mode: str) -> Scenario:
    return Scenario(name, shows, "send", (topic, str(threads), str(size), "{seconds}", mode))


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _send("sync64", "64 threads send 128 B and wait for each answer", "Sync64", 64, 128, "sync"),
        _send("sync1", "1 thread sends 128 B and waits for each answer", "Sync1", 1, 128, "sync"),
        _send("sync64_4k", "64 threads send 4 KiB and wait for each answer", "Sync64Large", 64, 4096, "sync"),
        _send("async8", "8 threads send 128 B, 128 answers outstanding at most", "Async8", 8, 128, "async"),
        _send("batch32", "16 threads send batches of 32 x 128 B", "Batch32", 16, 128, "batch:32"),
        Scenario(
            "drain",
            "a push consumer reads what sync64 sent, 400,000 messages at most",
            "drain",
            ("Sync64", "bench_drain", "{messages}", str(DRAIN_LIMIT)),
            "sync64",
        ),
        Scenario(
            "e2e200",
            "200 messages a second, from the send to the push consumer's listener",
            "deliver",
            ("EndToEnd", "200", "{seconds}"),
        ),
        _send(
            "sql92_send",
            "16 threads send batches of 100 x 128 B, each message with a number of its own as property n",
            "Numbered",
            16,
            128,
            f"numbered:{_SQL92_EVERY}",
        ),
        Scenario(
            "sql92",
            "a push consumer filters by SQL92 what sql92_send sent, 4,000,000 messages at most, of which 1 % match",
            "drain",
            ("Numbered", "bench_sql92", "{messages}", str(DRAIN_LIMIT), "n = 7", str(_SQL92_EVERY)),
            "sql92_send",
            SQL92_MOST,
            ("enablePropertyFilter=true",),
        ),
    )
}  # fmt: skip

# Unrecorded loads before the scenarios of a round: a JIT compiler must have seen the hot paths, reads included.
_WARM_UP = (
    _send("warm_sync", "", "WarmUp", 64, 128, "sync"),
    _send("warm_async", "", "WarmUp", 8, 128, "async"),
    Scenario("warm_drain", "", "drain", ("WarmUp", "bench_warm", "{messages}", str(DRAIN_LIMIT)), "warm_sync"),
    Scenario("warm_deliver", "", "deliver", ("WarmUpEndToEnd", "200", "{seconds}")),
)
# Runs only before a filtering load, since it needs a broker property.
_WARM_UP_SQL92 = (
    _send("warm_sql92_send", "", "WarmUpNumbered", 16, 128, f"numbered:{_SQL92_EVERY}"),
    Scenario(
        "warm_sql92",
        "",
        "drain",
        ("WarmUpNumbered", "bench_warm_sql92", "{messages}", str(DRAIN_LIMIT), "n = 7", str(_SQL92_EVERY)),
        "warm_sql92_send",
        SQL92_MOST // 4,
    ),
)


def warm_up(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the unrecorded loads that precede a round: one for each kind of send and read."""
    filters = any(scenario.name == "sql92" for scenario in scenarios)
    return [*_WARM_UP, *(_WARM_UP_SQL92 if filters else ())]


def chosen(only: str | None) -> list[Scenario]:
    """Return the scenarios of ``--only a,b`` in the given order, or all; a load that reads follows the one that sends.

    Raises:
        ValueError: a name is unknown.
    """
    names = [name.strip() for name in only.split(",")] if only else list(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            raise ValueError(f"unknown scenario {name!r}; known scenarios: {', '.join(SCENARIOS)}")
    return [SCENARIOS[name] for name in _with_messages_to_read(names)]


def _with_messages_to_read(names: Sequence[str]) -> list[str]:
    wanted = list(dict.fromkeys(names))
    for reads, sends in [(scenario.name, scenario.reads) for scenario in SCENARIOS.values() if scenario.reads]:
        if reads in wanted and sends not in wanted[: wanted.index(reads)]:
            wanted = [name for name in wanted if name != sends]
            wanted.insert(wanted.index(reads), sends)
    return wanted
