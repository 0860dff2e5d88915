"""Cost of metrics: sends of the official Java client, with an exporter that is read every 15 s and without one.

    bench/run metrics [--rounds 3] [--seconds 45] [--warm 20] [--json FILE] ...

bench/README.md explains each figure.
"""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Folder, Heap, JavaOnly, JsonFile, OursOnly, Report, Rounds, Row, Seconds, Warm, turns
from bench.load import SCENARIOS, Loads, warm_up
from bench.servers import JAVA, OURS, Running, Side, running
from bench.side_by_side import FIGURES, HEADS, sides
from tests.support.ports import LOOPBACK, free_ports

LOAD = "sync64"
OFF, SCRAPED = f"{LOAD}_off", f"{LOAD}_scraped"
PERIOD_S = 15.0
_TIMEOUT_S = 60


@contextmanager
def scraped(url: str) -> Iterator[list[int]]:
    """Read a page at once and every 15 s; yield the sizes of the pages."""
    sizes: list[int] = []
    ends = threading.Event()

    def scrape() -> None:
        while True:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                sizes.append(len(answer.read()))
            if ends.wait(PERIOD_S):
                return

    thread = threading.Thread(target=scrape, name="scrape")
    thread.start()
    try:
        yield sizes
    finally:
        ends.set()
        thread.join()


def measure(name: str, number: int, side: Side, servers: Running, seconds: int, warm: int) -> Row:
    """Measure the load after a warm-up."""
    loads = Loads(servers)
    if warm:
        for load, scenario in warm_up([]).items():
            loads.run(load, scenario, warm)
    return Row(number, side.name, name, *loads.run(LOAD, SCENARIOS[LOAD], seconds))


def metrics(  # noqa: PLR0913, PLR0917 - one argument for each option
    rounds: Rounds = 3,
    seconds: Seconds = 45,
    warm: Warm = 20,
    java_only: JavaOnly = False,
    ours_only: OursOnly = False,
    heap: Heap = "2g",
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure sends with and without metrics, of Apache RocketMQ 5.5.0 and ours in turn."""
    both = sides(java_only=java_only, ours_only=ours_only, heap=heap)
    report = Report(rounds, seconds=seconds, warm=warm, set="metricsExporterType=PROM or DISABLE")
    kinds = [(side, name) for side in both for name in (OFF, SCRAPED)]
    for number, (side, name) in turns(rounds, kinds):
        port = free_ports()
        given = ["metricsExporterType=PROM", f"metricsPromExporterPort={port}", f"metricsPromExporterHost={LOOPBACK}"]
        with running(side, folder, given if name == SCRAPED else []) as servers:
            if name == OFF:
                report.add(measure(name, number, side, servers, seconds, warm))
                continue
            with scraped(f"http://{LOOPBACK}:{port}/metrics") as sizes:
                report.add(measure(name, number, side, servers, seconds, warm))
            report.run[f"pages of {side.name}, round {number}"] = f"{len(sizes)} of up to {max(sizes):,} bytes"
    print("\n" + report.comparison(JAVA, OURS, FIGURES, HEADS))
    for line in costs(report):
        print(line)
    report.end(json_file)


def costs(report: Report) -> Iterator[str]:
    """Yield a line for each side on what metrics cost."""
    for side in (JAVA, OURS):
        for figure, what in (("rate", "rate"), ("cpu", "CPU time of a message")):
            off, on = (report.median(side, name, figure) for name in (OFF, SCRAPED))
            if off and on:
                yield f"metrics change the {what} of {side} by {(on / off - 1) * 100:+.1f} %"
