"""The measured loads: their names, and the arguments of the Java driver."""

from collections.abc import Sequence
from dataclasses import dataclass

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
