"""Four clients in turn under the same loads, on one broker of ours: ours, two others of PyPI, and the Java client.

    bench/run clients [--rounds 3] [--seconds 20] [--only ours,cpp] [--messages 200000] [--json FILE]

Each sends 128 bytes with 64 sends in flight, then consumes what a topic has. bench/README.md explains each figure.
"""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench import load
from bench.harness import ROOT, BenchError, JsonFile, Report, Rounds, Row, Seconds, chosen, turns
from bench.load import Outcome
from bench.servers import OUR_SIDE, running
from tests.support.java_toolchain import cache_dir, jars, made_once

OTHERS = ("rocketmq==0.4.4", "pyrocketmq==0.3.4", "JPype1==1.7.1")
NAMES = {
    "ours": "rocketbroker.client",
    "cpp": "rocketmq 0.4.4 (C++)",
    "jpype": "pyrocketmq 0.3.4 (JPype)",
    "java": "Java client 5.5.0",
}
SENDERS, BODY_BYTES = "64", "128"
TOPIC = "ClientLoad"
COLUMNS = {
    "rate": ("messages a second", ",.0f"),
    "p50": ("p50 ms", ".2f"),
    "p99": ("p99 ms", ".2f"),
    "cpu": ("CPU µs", ".1f"),
    "memory": ("memory MiB", ",.0f"),
}
_SHOWN = 2000
_INSTALL_LIMIT_S = 600


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


def run_client(client: str, arguments: Sequence[str], home: Path, limit: float) -> tuple[Outcome, float, float]:
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
    failed = f"the client ended with {process.returncode}: {text[-_SHOWN:].strip()}"
    outcome = Outcome(error=failed) if process.returncode else load.parse(text)
    return outcome, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def clients(
    rounds: Rounds = 3,
    seconds: Seconds = 20,
    messages: Annotated[int, typer.Option(min=1, help="Messages that each client consumes, at most.")] = 200_000,
    only: Annotated[str, typer.Option(metavar="A,B", help="Clients.")] = ",".join(NAMES),
    json_file: JsonFile = None,
) -> None:
    """Measure clients on one broker of ours. Exit with status 1 if a send or a delivery fails."""
    wanted = chosen(only, NAMES, "client")
    load.prepare()
    report = Report(rounds, seconds=seconds, messages=messages)
    with running(OUR_SIDE) as servers:

        def measure(number: int, client: str, name: str, arguments: Sequence[str], limit: int) -> int:
            outcome, cpu, memory = run_client(client, [name, servers.namesrv, TOPIC, *arguments], servers.home, limit)
            report.add(Row(number, NAMES[client], name, outcome.figures(cpu, memory=memory), outcome.trouble))
            return outcome.done

        sent: dict[int, int] = {}
        for number, client in turns(rounds, wanted):
            mode = ["sync"] if client == "java" else []
            done = measure(number, client, "send", [SENDERS, BODY_BYTES, str(seconds), *mode], seconds * 2 + 60)
            sent[number] = sent.get(number, 0) + done
        # Each consumes what all have sent in a round.
        for number, client in turns(rounds, wanted):
            drain = [f"CG_{client}_{number}", str(min(messages, sent[number])), str(seconds * 3)]
            measure(number, client, "drain", drain, seconds * 3 + 60)
    print("\n" + report.table(["client", "load"], COLUMNS))
    report.end(json_file)
