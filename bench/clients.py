"""Four clients in turn under the same loads, on one broker of ours: ours, two others of PyPI, and the Java client.

    bench/run clients [--rounds 3] [--seconds 20] [--only ours,cpp] [--messages 200000] [--json FILE]

Each sends 128 bytes with 64 sends in flight, then consumes what a topic has. bench/README.md explains each figure.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench import load
from bench.harness import BenchError, JsonFile, Rounds, heading
from bench.load import Outcome
from bench.servers import Running, our_side, running
from tests.support.java_toolchain import cache_dir, jars, made_once, missing_tools

ROOT = Path(__file__).resolve().parent.parent
OTHERS = ("rocketmq==0.4.4", "pyrocketmq==0.3.4", "JPype1==1.7.1")
NAMES = {
    "ours": "rocketbroker.client",
    "cpp": "rocketmq 0.4.4 (C++)",
    "jpype": "pyrocketmq 0.3.4 (JPype)",
    "java": "Java client 5.5.0",
}
SENDERS, BODY_BYTES = "64", "128"
TOPIC = "ClientLoad"
_SHOWN = 2000
_INSTALL_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one load through one client; ``cpu`` is µs of the client a message, ``memory`` its peak in MiB."""

    client: str
    load: str
    figures: dict[str, float]
    trouble: str = ""


def others() -> Path:
    """Return the interpreter of an environment with the other clients, which is made at first use.

    Raises:
        BenchError: They cannot be installed.
    """

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *OTHERS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False)
        if done.returncode:
            raise BenchError(f"cannot install {', '.join(OTHERS)}: {done.stderr[-_SHOWN:]}")

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = "-".join(each.replace("==", "-") for each in OTHERS)
    return made_once(cache_dir() / f"clients-{version}-{name}", install) / "bin" / "python"


def command_of(client: str, home: Path) -> list[str]:
    """Return the command of a client's driver, without the arguments of the load."""
    if client == "java":
        return load.java_command(home)
    python = sys.executable if client == "ours" else str(others())
    return [python, "-P", "-m", "bench.client_loads", client]


def run_client(client: str, arguments: list[str], home: Path, limit: float) -> tuple[Outcome, float, float]:
    """Run one load; return its outcome, CPU seconds and peak memory in MiB of the client's process."""
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "HOME": str(home), "CLIENT_JARS": f"{jars('4.9.8')}/*"}
    with (home / "client.out").open("w+b") as out:
        process = subprocess.Popen(
            [*command_of(client, home), *arguments], stdout=out, stderr=subprocess.STDOUT, cwd=home, env=environment
        )
        deadline, ended = time.monotonic() + limit, 0
        while not ended:
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.02)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode:
        outcome = Outcome(error=f"the client ended with {process.returncode}: {text[-_SHOWN:].strip()}")
    else:
        outcome = load.parse(text)
    return outcome, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(clients: list[str], servers: Running, number: int, seconds: int, messages: int) -> Iterator[Row]:
    """Measure each client in turn; all consume what all have sent, ``messages`` at most."""
    there = [servers.namesrv, TOPIC]
    sent = 0
    for client in clients:
        send = ["send", *there, SENDERS, BODY_BYTES, str(seconds)]
        measured = run_client(client, [*send, *_mode(client)], servers.home, seconds * 2 + 60)
        sent += measured[0].done
        yield _row(client, "send", measured)
    for client in clients:
        drain = ["drain", *there, f"CG_{client}_{number}", str(min(messages, sent)), str(seconds * 3)]
        yield _row(client, "drain", run_client(client, drain, servers.home, seconds * 3 + 60))


def _mode(client: str) -> list[str]:
    return ["sync"] if client == "java" else []


def _row(client: str, name: str, measured: tuple[Outcome, float, float]) -> Row:
    outcome, cpu, memory = measured
    figures = {"rate": outcome.rate, "p50": outcome.p50, "p99": outcome.p99, "memory": memory}
    figures["cpu"] = cpu / outcome.done * 1e6 if outcome.done else None
    return Row(client, name, {key: value for key, value in figures.items() if value is not None}, outcome.trouble)


def table(rows: list[Row]) -> str:
    """Return the medians as a Markdown table."""
    lines = [
        "| client | load | messages a second | p50 ms | p99 ms | CPU µs | memory MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for client, name in dict.fromkeys((row.client, row.load) for row in rows):
        found = [row.figures for row in rows if (row.client, row.load) == (client, name)]
        cells = [_median(found, key, form) for key, form in
                 (("rate", ",.0f"), ("p50", ".2f"), ("p99", ".2f"), ("cpu", ".1f"), ("memory", ",.0f"))]  # fmt: skip
        lines.append(f"| {NAMES[client]} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(found: list[dict[str, float]], key: str, form: str) -> str:
    values = [figures[key] for figures in found if key in figures]
    return format(statistics.median(values), form) if values else "-"


def _prepare() -> None:
    if reason := missing_tools():
        raise BenchError(reason)
    load.prepare()


def _chosen(value: str) -> str:
    if unknown := set(value.split(",")) - NAMES.keys():
        raise typer.BadParameter(f"no client {', '.join(sorted(unknown))}, there are {', '.join(NAMES)}")
    return value


def clients(
    rounds: Rounds = 3,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load that sends.")] = 20,
    messages: Annotated[int, typer.Option(min=1, help="Messages that each client consumes, at most.")] = 200_000,
    only: Annotated[str, typer.Option(callback=_chosen, metavar="A,B", help="Clients.")] = ",".join(NAMES),
    json_file: JsonFile = None,
) -> None:
    """Measure clients on one broker of ours. Exit with status 1 if a send or a delivery fails."""
    rows: list[Row] = []
    _prepare()
    run = heading(rounds=rounds, seconds=seconds, messages=messages)
    with running(our_side(), None, ()) as servers:
        for number in range(1, rounds + 1):
            turn = only.split(",") if number % 2 else only.split(",")[::-1]
            for row in measure(turn, servers, number, seconds, messages):
                rows.append(row)
                figures = "  ".join(f"{name} {value:,.2f}" for name, value in row.figures.items())
                print(f"[{number}/{rounds}] {row.client:5} {row.load:5} {figures} {row.trouble}".rstrip(), flush=True)
    print("\n" + table(rows))
    if json_file is not None:
        shown = [{"client": row.client, "load": row.load, **row.figures, "trouble": row.trouble} for row in rows]
        json_file.write_text(json.dumps({"run": run, "rows": shown}, indent=1))
    raise typer.Exit(1 if any(row.trouble for row in rows) else 0)
