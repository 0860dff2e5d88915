"""Cost of reading the same messages from a broker by Spark and by clients, and from the broker's store; of sending.

    bench/run analytics_live [--messages 200000] [--rounds 3] [--only live_full,...] [--json FILE]

bench/README.md describes each case.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.analytics import START, Measure, Store, lines, python, run_cases, told, write_json
from bench.analytics_spark import BODY_BYTES, LIVE, LIVE_TOPIC, SINK, SINK_ROWS
from bench.harness import ROOT, Folder, JsonFile, Rounds, chosen, heading, table, temporary
from bench.servers import OUR_SIDE, Running, running
from bench.stores import Messages, body_of, check_room, fill
from tests.support.java_toolchain import WITH_PARQUET, driver_classpath, find_tools

STORED: Final = ("spark_full", "spark_to_parquet", "spark_export")
_SEGMENT: Final = 1 << 28


def java_command(home: Path) -> list[str]:
    """Return the command of the Java client, compiled at first use, without its arguments; it logs below ``home``."""
    classpath = driver_classpath("PullToParquet", WITH_PARQUET, ROOT / "bench" / "java")
    return [find_tools()["java"], "-Xmx1g", f"-Duser.home={home}", "-cp", classpath, "PullToParquet"]


PULLS: Final = {"pull_python": lambda _home: python("pull_to_parquet"), "pull_java": java_command}
CASES: Final = (*STORED, *LIVE, *PULLS)


def _measure(store: Store, servers: Running, names: Sequence[str], number: int) -> Iterator[Measure]:
    """Run the cases of one round: those on the store, and those with a broker on its copy."""
    for place, known in ((str(store.root), STORED), (servers.namesrv, tuple(LIVE))):
        if mine := [name for name in known if name in names]:
            for found in run_cases(store, number, 1, *python("analytics_spark"), place, "1", *mine):
                yield replace(found, messages=SINK_ROWS) if found.name == SINK else found
    for name, command in PULLS.items():
        if name in names:
            yield from run_cases(store, number, 0, *command(servers.home), servers.namesrv, LIVE_TOPIC)


def markdown(found: Sequence[Measure]) -> str:
    """Return the table of all cases."""
    rows = [
        [each.name, f"{each.wall:.2f}", f"{each.messages / each.wall:,.0f}", f"{each.cpu_ns / 1e3:.1f}"]
        for each in found
        if each.name != START
    ]
    return table(["case", "wall s", "messages/s", "CPU µs a message"], rows)


def analytics_live(
    messages: Annotated[int, typer.Option(min=1, help="Messages to read.")] = 200_000,
    rounds: Rounds = 3,
    only: Annotated[str, typer.Option(metavar="A,B", help="Cases to run, by name.")] = ",".join(CASES),
    folder: Folder = None,
    json_file: JsonFile = None,
) -> None:
    """Measure reads from a broker, by Spark and by clients, and sends. Exit with status 1 if a case fails."""
    names, shape = chosen(only, CASES, "case"), Messages(body_of(BODY_BYTES), topics=(LIVE_TOPIC,))
    run = heading(messages=messages, rounds=rounds, only=only)
    os.environ.pop("NAMESRV_ADDR", None)  # the Java client would prefer it
    with temporary(folder) as home:
        check_room(home, messages * 2 + SINK_ROWS * 2 * rounds, shape)
        settings = {"mapped_file_size_commit_log": _SEGMENT, "message_index_enable": False}
        filled = fill(home / "store", messages, shape, **settings)
        copy = shutil.copytree(filled.root, home / "copy")
        properties = [f"mappedFileSizeCommitLog={_SEGMENT}", "messageIndexEnable=false"]
        store = Store(filled.root, 0, messages, filled.end)
        with running(OUR_SIDE, home, properties, store=copy) as servers:
            measures = [
                told(found) for number in range(1, rounds + 1) for found in _measure(store, servers, names, number)
            ]
    medians = lines(measures)
    write_json(json_file, run, medians, measures)
    print("\n" + markdown(medians))
