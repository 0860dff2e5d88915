"""Time to open a store of a hundred million messages, and pull rate from its middle.

    bench/run big_store [--messages 100000000] [--pull 400000] [--rounds 5] [--java] [--store DIR] [--dir DIR]

bench/README.md describes the comparison.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench import load, raw_load
from bench.harness import BenchError, Folder, KeptStore, commit
from bench.measure import cpu_seconds, drop_from_page_cache, room
from bench.servers import Server, name_server, opened, our_side
from bench.store_generator import NUMBER, Messages, StoreGenerator
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from tests.support.java_toolchain import JavaError, missing_tools

TOPIC = "Big"
QUEUES = 8
# Small: with queue and index entries a message takes 160 bytes.
BODY = NUMBER
PROPERTIES = b"KEYS\x01k" + NUMBER + b"\x02"
MIDDLE, FRESH, SENT = "middle", "fresh", "sent"
SHOWS = {
    MIDDLE: "the middle of the big store",
    FRESH: "a store of these messages alone, opened like the big one",
    SENT: "a store of these messages alone, just sent to the broker",
}
_OPEN_LIMIT = 600  # seconds
_DRAIN_LIMIT = 120
# Share of the free bytes to fill: file systems reserve some.
_FILLED = 0.97
_GROUP = "bench_drain"


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of pulls: messages a second, CPU time of the broker in µs a message, messages a pull."""

    place: str
    number: int
    rate: float
    cpu: float
    per_pull: float


def generator_of(root: Path, count: int) -> StoreGenerator:
    """Return the generator of a store of ``count`` small messages, the last one a minute old."""
    messages = Messages((TOPIC,), QUEUES, BODY, PROPERTIES, 0)
    first = SystemClock().time_ms() - messages.timestamp(count) - 60_000
    config = MessageStoreConfig(store_path_root_dir=str(root))
    return StoreGenerator(config, replace(messages, first_timestamp=first), count)


def count_for(wanted: int, free: int) -> int:
    """Return the number of messages that fit into ``free`` bytes, at most ``wanted``."""
    per_message = generator_of(Path(), wanted).disk_bytes / wanted
    return min(wanted, max(int(free * _FILLED / per_message), 0))


def write(made: StoreGenerator) -> None:
    """Write the store as left by a clean stop, and print the progress."""
    begun, tenth = time.monotonic(), made.count // 10 + 1

    def progress(done: int) -> None:
        nonlocal tenth
        if done >= tenth:
            print(f"{done:,} messages written after {time.monotonic() - begun:.0f} s", flush=True)
            tenth += made.count // 10 + 1

    made.write(progress)
    made.mark_clean()


def starts(made: StoreGenerator, home: Path, rounds: int) -> Iterator[tuple[float, float]]:
    """Yield wall and CPU seconds from exec to the first answer; the first start reads all files from the disk.

    Raises:
        BenchError: the broker did not start, or its log has the wrong end.
    """
    root = Path(made.config.store_path_root_dir)
    drop_from_page_cache(root)
    for _ in range(rounds):
        with opened(root, home, limit=_OPEN_LIMIT) as broker:
            end = raw_load.log_end(broker.address)
            if end != made.end:
                raise BenchError(f"the log of {root} ends at {end} instead of {made.end}")
        yield broker.seconds, broker.cpu_seconds


def middle_of(made: StoreGenerator, each: int) -> list[int]:
    """Return the queue offset, by queue, at which the middle ``each`` messages begin."""
    return [(made.count // QUEUES - each) // 2] * QUEUES


def passes(brokers: dict[str, Server], starts_of: dict[str, list[int]], each: int, rounds: int) -> Iterator[Pass]:
    """Pull the same number of messages from each broker in turn, ``rounds`` times.

    Raises:
        BenchError: a broker returned the wrong messages.
    """
    for number in range(1, rounds + 1):
        # Alternate the direction, so that no broker always follows the same one.
        for place in brokers if number % 2 else reversed(brokers):
            broker = brokers[place]
            before = cpu_seconds(broker.pid)
            pulled = raw_load.pull(broker.address, TOPIC, starts_of[place], each)
            cpu = (cpu_seconds(broker.pid) - before) / pulled.messages * 1e6
            yield Pass(place, number, pulled.rate, cpu, pulled.messages / pulled.pulls)


def table(found: Sequence[Pass]) -> Iterator[str]:
    """Yield a Markdown table: first pass of each place, medians of the others, ratio to the middle of the store."""
    yield "| pulled from | first pass | rate | middle / this | cpu | messages a pull |"
    yield "|---|---:|---:|---:|---:|---:|"
    medians = {place: _median_rate(found, place) for place in SHOWS}
    for place, shows in SHOWS.items():
        mine = [each for each in found if each.place == place]
        ratio = medians[MIDDLE] / medians[place]
        cpu = median(each.cpu for each in mine[1:] or mine)
        yield (
            f"| {shows} | {mine[0].rate:,.0f} | {medians[place]:,.0f} | {ratio:.2f} "
            f"| {cpu:.2f} | {mine[0].per_pull:.1f} |"
        )


def _median_rate(found: Sequence[Pass], place: str) -> float:
    rates = [each.rate for each in found if each.place == place]
    return median(rates[1:] or rates)


def pull_passes(big: StoreGenerator, home: Path, each: int, rounds: int) -> list[Pass]:
    """Pull from all three places, print each pass and return all passes.

    Raises:
        BenchError: a broker did not start or returned the wrong messages.
    """
    small = generator_of(home / FRESH, each * QUEUES)
    small.write()
    small.mark_clean()
    empty = generator_of(home / SENT, each * QUEUES)
    empty.write_topics()
    found = []
    with ExitStack() as stack:
        brokers = {}
        for place, made in ((MIDDLE, big), (FRESH, small), (SENT, empty)):
            of_broker = home / f"{place}-broker"
            of_broker.mkdir()
            root = Path(made.config.store_path_root_dir)
            brokers[place] = stack.enter_context(opened(root, of_broker, limit=_OPEN_LIMIT))
        raw_load.send(brokers[SENT].address, empty.messages, empty.count)
        begins = {MIDDLE: middle_of(big, each), FRESH: [0] * QUEUES, SENT: [0] * QUEUES}
        for one in passes(brokers, begins, each, rounds):
            found.append(one)
            print(f"[{one.number}/{rounds}] {one.place:6} {one.rate:10,.0f} messages/s  cpu {one.cpu:.2f}", flush=True)
    return found


def java_drains(big: StoreGenerator, home: Path, each: int, rounds: int) -> dict[str, float]:
    """Return the median rate of Apache's push consumer in messages a second, by place.

    Raises:
        JavaError, BenchError, BenchError: Java is missing, or a broker failed.
    """
    rates: dict[str, list[float]] = {MIDDLE: [], FRESH: []}
    for number in range(rounds):
        for place, begins in ((MIDDLE, middle_of(big, each)), (FRESH, [0] * QUEUES)):
            root = Path(big.config.store_path_root_dir) if place == MIDDLE else home / FRESH
            rate = _java_drain(root, home, f"{_GROUP}_{number}", begins, each * QUEUES)
            rates[place].append(rate)
            print(f"[{number + 1}/{rounds}] Java drain, {place:6} {rate:10,.0f} messages/s", flush=True)
    return {place: median(values) for place, values in rates.items()}


def _prepare_java() -> None:
    reason = missing_tools()
    if reason:
        raise JavaError(reason)
    load.prepare()


def _java_drain(root: Path, home: Path, group: str, begins: Sequence[int], messages: int) -> float:
    of_broker = home / "java-broker"
    of_broker.mkdir(exist_ok=True)
    with name_server(our_side(), of_broker) as namesrv, opened(root, of_broker, namesrv=namesrv.address) as broker:
        raw_load.commit_offsets(broker.address, group, TOPIC, begins)
        arguments = ["drain", namesrv.address, TOPIC, group, str(messages), str(_DRAIN_LIMIT)]
        outcome = load.run_load(arguments, of_broker, limit=_DRAIN_LIMIT + 60)
    if outcome.trouble or outcome.rate is None:
        raise BenchError(outcome.trouble)
    return outcome.rate


def measure(big: StoreGenerator, home: Path, each: int, rounds: int, *, java: bool) -> None:
    """Open the big store, pull from it and print all figures.

    Raises:
        JavaError, BenchError, BenchError: a start, a pull or a drain failed.
    """
    for number, (seconds, cpu) in enumerate(starts(big, home, rounds + 1)):
        how = "page cache warm" if number else "from the disk"
        print(f"open, {how}: {seconds:.2f} s, CPU {cpu:.2f} s", flush=True)
    found = pull_passes(big, home, each, rounds + 1)
    rates = java_drains(big, home, each, rounds) if java else {}
    print("\n" + "\n".join(table(found)))
    if rates:
        print(
            f"\nJava drain: {rates[MIDDLE]:,.0f} messages/s from the middle, {rates[FRESH]:,.0f} from the store of "
            f"these messages alone, ratio {rates[MIDDLE] / rates[FRESH]:.2f}"
        )


def made_in(root: Path, messages: int, pulled: int) -> StoreGenerator:
    """Return the store in a folder, created if missing; it is smaller than asked for on a small disk."""
    free = room(root) - 2 * generator_of(root, pulled).disk_bytes
    there = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
    count = count_for(messages, free + there)
    if count < pulled:
        raise BenchError(f"{root} has room for {count:,} messages only, fewer than --pull; free some space")
    if count < messages:
        print(f"{count:,} of {messages:,} messages: {root} has no room for more")
    made = generator_of(root, count)
    print(f"commit {commit()}, {count:,} messages, {made.disk_bytes / 1e9:.1f} GB with queues and index")
    if not made.config.commit_log_dir.exists():
        write(made)
    return made


def big_store(
    messages: Annotated[int, typer.Option(min=1000, help="Messages in the store.")] = 100_000_000,
    pulled: Annotated[int, typer.Option("--pull", min=QUEUES, help="Messages to pull.")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="Starts and passes of pulls, without the first of each.")] = 5,
    java: Annotated[bool, typer.Option("--java", help="Pull by Apache's push consumer as well.")] = False,
    store: KeptStore = None,
    folder: Folder = None,
) -> None:
    """Measure a big store. Exit with status 1 if it does not open or returns the wrong messages."""
    with TemporaryDirectory(prefix="rocketbroker-big-", dir=folder) as temporary:
        home = Path(temporary)
        root = store or home / "store"
        root.mkdir(parents=True, exist_ok=True)
        if java:
            _prepare_java()
        measure(made_in(root, messages, pulled), home, pulled // QUEUES, rounds, java=java)
