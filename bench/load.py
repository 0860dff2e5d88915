"""Loads of the official Java client: their names, and their runs by the driver (bench/java/Load.java)."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import servers
from bench.harness import ROOT, BenchError, chosen
from bench.measure import anonymous_mib, cpu_seconds
from bench.servers import OUR_SIDE, Running, broker, name_server
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.java_toolchain import driver_classpath, find_tools, missing_tools

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

    def figures(self, cpu: float, **others: float) -> dict[str, float]:
        """Return the available figures by name, with ``cpu`` seconds as µs a message."""
        each = {"cpu": cpu / self.done * 1e6} if self.done else {}
        found = {"rate": self.rate, "p50": self.p50, "p99": self.p99, **each, **others, "found": self.found}
        return {name: value for name, value in found.items() if value is not None}


def prepare() -> None:
    """Fetch the jars and compile the driver once, into the cache that the tests use.

    Raises:
        BenchError: tools are missing.
        JavaError: Maven or the compiler failed.
    """
    if reason := missing_tools():
        raise BenchError(reason)
    driver_classpath("Load", _CLIENT_VERSION, ROOT / "bench" / "java")


def java_command(
    home: Path, driver: str = "Load", client: str = _CLIENT_VERSION, options: Sequence[str] = ()
) -> list[str]:
    """Return the command of a Java driver without the arguments of a load; ``options`` are those of its JVM."""
    classpath = driver_classpath(driver, client, ROOT / "bench" / "java")
    return [find_tools()["java"], "-Xms512m", "-Xmx1g", f"-Duser.home={home}", *options, "-cp", classpath, driver]


def run_load(arguments: list[str], home: Path, limit: float, command: Sequence[str] = ()) -> Outcome:
    """Run one load for at most ``limit`` seconds, by the driver of the old protocol without a ``command``.

    The client logs below ``home``.
    """
    # The client would read name servers from this variable.
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    try:
        done = subprocess.run(
            [*(command or java_command(home)), *arguments],
            capture_output=True, text=True, timeout=limit, cwd=home, env=environment, check=False,
        )  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load.

    Attributes:
        arguments: arguments of ``java/Load.java``, the name server aside, with fields ``{seconds}`` and ``{messages}``.
        reads: the load whose messages it reads; empty for a load that sends.
        most: the most messages that it reads.
        properties: broker properties that it needs, as ``KEY=VALUE``.
    """

    arguments: str
    reads: str = ""
    most: int = DRAIN_MOST
    properties: tuple[str, ...] = ()

    def command(self, namesrv: str, seconds: int, messages: int) -> list[str]:
        """Return the arguments of ``Load``; ``messages`` is the number of messages in the topic that a drain reads."""
        words = [word.format(seconds=seconds, messages=min(messages, self.most)) for word in self.arguments.split()]
        # The driver takes a filter as one argument.
        return [words[0], namesrv, *(word.replace("=", " = ") for word in words[1:])]


_DRAIN = f"{{messages}} {DRAIN_LIMIT}"
SCENARIOS = {
    "sync64": Scenario("send Sync64 64 128 {seconds} sync"),
    "sync1": Scenario("send Sync1 1 128 {seconds} sync"),
    "sync64_4k": Scenario("send Sync64Large 64 4096 {seconds} sync"),
    "async8": Scenario("send Async8 8 128 {seconds} async"),
    "batch32": Scenario("send Batch32 16 128 {seconds} batch:32"),
    "drain": Scenario(f"drain Sync64 bench_drain {_DRAIN}", "sync64"),
    "e2e200": Scenario("deliver EndToEnd 200 {seconds}"),
    "sql92_send": Scenario("send Numbered 16 128 {seconds} numbered:100"),
    "sql92": Scenario(
        f"drain Numbered bench_sql92 {_DRAIN} n=7 100", "sql92_send", SQL92_MOST, ("enablePropertyFilter=true",)
    ),
}
POP1_MOST = 40_000  # messages
_POP = f"{{messages}} {DRAIN_LIMIT} 8"
POP_SCENARIOS = {
    "pop_send": Scenario("send Pop 64 128 {seconds} sync"),
    "pop32": Scenario(f"pop Pop bench_pop32 {_POP} 32", "pop_send"),
    "pop1ack": Scenario(f"pop Pop bench_pop1ack {_POP} 1", "pop_send", POP1_MOST),
    "pope2e": Scenario("deliver PopEndToEnd 200 {seconds} 4"),
}
# Unrecorded loads before the scenarios of a round: a JIT compiler must have seen the hot paths, reads included.
_WARM_UP = {
    "warm_sync": Scenario("send WarmUp 64 128 {seconds} sync"),
    "warm_async": Scenario("send WarmUp 8 128 {seconds} async"),
    "warm_drain": Scenario(f"drain WarmUp bench_warm {_DRAIN}", "warm_sync"),
    "warm_deliver": Scenario("deliver WarmUpEndToEnd 200 {seconds}"),
}
# Run only before a filtering load, since it needs a broker property.
_WARM_UP_SQL92 = {
    "warm_sql92_send": Scenario("send WarmUpNumbered 16 128 {seconds} numbered:100"),
    "warm_sql92": Scenario(
        f"drain WarmUpNumbered bench_warm_sql92 {_DRAIN} n=7 100", "warm_sql92_send", SQL92_MOST // 4
    ),
}
POP_WARM_UP = {
    "warm_send": Scenario("send WarmUp 64 128 {seconds} sync"),
    "warm_pop32": Scenario(f"pop WarmUp bench_warm32 {_POP} 32", "warm_send"),
    "warm_pop1ack": Scenario(f"pop WarmUp bench_warm1ack {_POP} 1", "warm_send", POP1_MOST),
    "warm_pope2e": Scenario("deliver WarmUpEndToEnd 200 {seconds} 4"),
}


def scenarios(only: str | None, known: Mapping[str, Scenario] = SCENARIOS) -> dict[str, Scenario]:
    """Return the scenarios of ``--only a,b`` in the given order, or all; a load that reads follows the one that sends.

    Raises:
        BadParameter: a name is unknown.
    """
    names = chosen(only, known, "scenario") if only else list(known)
    for reads, sends in [(name, scenario.reads) for name, scenario in known.items() if scenario.reads]:
        if reads in names and sends not in names[: names.index(reads)]:
            names = [name for name in names if name != sends]
            names.insert(names.index(reads), sends)
    return {name: known[name] for name in names}


def warm_up(wanted: Iterable[str]) -> dict[str, Scenario]:
    """Return the unrecorded loads that precede a round: one for each kind of send and read."""
    return _WARM_UP | (_WARM_UP_SQL92 if "sql92" in wanted else {})


class Loads:
    """Loads on running servers, one after the other; a load that reads is given what an earlier one has sent.

    Args:
        running: the servers.
        slave: a slave of the broker, which is measured as well.
        options: options of the client's JVM.
    """

    def __init__(self, running: Running, slave: servers.Server | None = None, options: Sequence[str] = ()) -> None:
        self._running = running
        self._options = options
        self._slave = slave
        self._sent: dict[str, int] = {}

    def run(self, name: str, scenario: Scenario, seconds: int) -> tuple[dict[str, float], str]:
        """Run one load; return its figures, with memory and CPU time of the broker, and its failure."""
        home, pids = self._running.home, [self._running.broker.pid] + ([self._slave.pid] if self._slave else [])
        arguments = scenario.command(self._running.namesrv, seconds, self._sent.get(scenario.reads, 0))
        before = [cpu_seconds(pid) for pid in pids]
        command = {"command": java_command(home, options=self._options)} if self._options else {}
        outcome = run_load(arguments, home, limit=seconds * 3 + 90, **command)
        cpus = [cpu_seconds(pid) - cpu for pid, cpu in zip(pids, before, strict=True)]
        self._sent[name] = outcome.done
        figures = outcome.figures(cpus[0], anon=anonymous_mib(pids[0]))
        if self._slave is not None and outcome.done:
            figures |= {"slave_cpu": cpus[1] / outcome.done * 1e6, "slave_anon": anonymous_mib(pids[1])}
        return figures, outcome.trouble


def drain_store(  # noqa: PLR0913, PLR0917 - a store, a group's place in it, and what it reads
    root: Path,
    home: Path,
    topic: str,
    group: str,
    offsets: Sequence[int],
    messages: int,
    settings: Sequence[str] = (),
    limit: int = 120,
) -> float:
    """Return the messages a second of Apache's push consumer on a store that our broker opens.

    Args:
        root: the store.
        home: folder for settings and logs.
        topic: the topic.
        group: a new group.
        offsets: where the group begins, by queue.
        messages: messages to consume.
        settings: ``key=value`` lines of the broker.
        limit: seconds within which it must be done.

    Raises:
        BenchError: a process failed, or messages were missing.
    """
    with (
        name_server(OUR_SIDE, home) as namesrv,
        broker(home, settings, namesrv=namesrv.address, store=root, limit=600) as found,
    ):
        group_made = json.dumps({"groupName": group}).encode()
        servers.ask(found.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group_made)
        for queue, offset in enumerate(offsets):
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
            servers.ask(found.address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        outcome = run_load(["drain", namesrv.address, topic, group, str(messages), str(limit)], home, limit + 60)
    if outcome.trouble or outcome.rate is None:
        raise BenchError(outcome.trouble)
    return outcome.rate
