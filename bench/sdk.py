"""Servers of the gRPC protocol under load from the official Java SDK: our broker, and Apache's proxy in LOCAL mode.

    bench/run sdk [--rounds 3] [--seconds 20] [--only send64,receive64,deliver200] [--heap 2g]
                  [--sides ours,apache] [--json FILE]

bench/README.md explains each load.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import Heap, JsonFile, Report, Rounds, Row, Seconds, chosen, temporary, turns
from bench.load import Outcome, java_command, run_load
from bench.measure import anonymous_mib, cpu_seconds
from bench.servers import OUR_SIDE, Server, apache_proxy, ask, grpc_broker, java_side, name_server
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.java_toolchain import SDK

SENDERS, BODY_BYTES, RATE = 64, 128, 200
RECEIVE_LIMIT_S = 60
SIDES = ("ours", "apache")
LOADS = ("send64", "receive64", "deliver200")
COLUMNS = {
    "rate": ("messages a second", ",.0f"),
    "p50": ("p50 ms", ".2f"),
    "p99": ("p99 ms", ".2f"),
    "cpu": ("CPU µs", ".1f"),
    "memory": ("MiB", ".0f"),
}
_SLACK_S = 90  # for the start and the end of a JVM
_PERM = 6  # read and write


def _make(broker: str, topic: str) -> None:
    """Make a topic and its consumer group: the protocol makes neither."""
    queues = {"readQueueNums": 8, "writeQueueNums": 8, "perm": _PERM}
    fields = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", **queues}
    ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    group = json.dumps({"groupName": f"CG_{topic}"}).encode()
    ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)


def sdk(
    rounds: Rounds = 3,
    seconds: Seconds = 20,
    only: Annotated[str, typer.Option(metavar="A,B", help="Loads; receive64 needs send64.")] = ",".join(LOADS),
    heap: Heap = "2g",
    sides: Annotated[str, typer.Option(metavar="A,B", help="Servers to measure.")] = ",".join(SIDES),
    json_file: JsonFile = None,
) -> None:
    """Measure servers of the gRPC protocol. Exit with status 1 if a send or a delivery fails."""
    wanted = chosen(only, LOADS, "load")
    report = Report(rounds, seconds=seconds, heap=heap)
    for number, name in turns(rounds, chosen(sides, SIDES, "side")):
        side = OUR_SIDE if name == "ours" else java_side(heap)
        with temporary() as home, name_server(side, home) as namesrv:
            started = (
                grpc_broker(home, namesrv.address) if name == "ours" else apache_proxy(home, heap, namesrv.address)
            )
            with started as (server, endpoints):
                for load, outcome, cpu in _run(home, server, endpoints, wanted, seconds):
                    figures = outcome.figures(cpu, memory=anonymous_mib(server.pid))
                    report.add(Row(number, name, load, figures, outcome.trouble))
    print("\n" + report.table(["server", "load"], COLUMNS))
    report.end(json_file)


def _run(
    home: Path, server: Server, endpoints: str, loads: list[str], seconds: int
) -> Iterator[tuple[str, Outcome, float]]:
    """Run loads on a server warmed up by shorter ones; yield the outcome and the server's CPU seconds of each."""
    for _ in _run_on("WarmUp", home, server, endpoints, loads, max(seconds // 2, 1)):
        pass
    yield from _run_on("Measured", home, server, endpoints, loads, seconds)


def _run_on(
    topic: str, home: Path, server: Server, endpoints: str, loads: list[str], seconds: int
) -> Iterator[tuple[str, Outcome, float]]:
    delivered = f"{topic}Delivered"
    for each in (topic, delivered):
        _make(server.address, each)
    sent = 0
    for load in loads:
        arguments = {
            "send64": ["send", endpoints, topic, SENDERS, BODY_BYTES, seconds],
            "receive64": ["receive", endpoints, topic, f"CG_{topic}", SENDERS, sent, RECEIVE_LIMIT_S],
            "deliver200": ["deliver", endpoints, delivered, f"CG_{delivered}", RATE, seconds],
        }[load]
        before = cpu_seconds(server.pid)
        command = java_command(home, "SdkLoad", SDK)
        outcome = run_load([str(word) for word in arguments], home, seconds + RECEIVE_LIMIT_S + _SLACK_S, command)
        yield load, outcome, cpu_seconds(server.pid) - before
        sent = outcome.done if load == "send64" else sent
