"""Servers of the gRPC protocol under load from the official Java SDK: Apache's proxy 5.5.0 in LOCAL mode.

    bench/run sdk [--rounds 3] [--seconds 20] [--only send64,receive64,deliver200] [--heap 2g] [--json FILE]

bench/README.md explains each load.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import Heap, JsonFile, Report, Rounds, Row, Seconds, chosen, temporary
from bench.load import Outcome, java_command, run_load
from bench.measure import cpu_seconds
from bench.servers import Server, apache_proxy, ask, java_side, name_server
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.java_toolchain import SDK

SENDERS, BODY_BYTES, RATE = 64, 128, 200
RECEIVE_LIMIT_S = 60
APACHE = "Apache"
LOADS = ("send64", "receive64", "deliver200")
COLUMNS = {
    "rate": ("messages a second", ",.0f"),
    "p50": ("p50 ms", ".2f"),
    "p99": ("p99 ms", ".2f"),
    "cpu": ("CPU µs", ".1f"),
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
    json_file: JsonFile = None,
) -> None:
    """Measure servers of the gRPC protocol. Exit with status 1 if a send or a delivery fails."""
    wanted = chosen(only, LOADS, "load")
    report = Report(rounds, seconds=seconds, heap=heap)
    for number in range(1, rounds + 1):
        with (
            temporary() as home,
            name_server(java_side(heap), home) as namesrv,
            apache_proxy(home, heap, namesrv.address) as (server, endpoints),
        ):
            for load, outcome, cpu in _run(home, server, endpoints, wanted, seconds):
                report.add(Row(number, APACHE, load, outcome.figures(cpu), outcome.trouble))
    print("\n" + report.table(["server", "load"], COLUMNS))
    report.end(json_file)


def _run(
    home: Path, server: Server, endpoints: str, loads: list[str], seconds: int
) -> Iterator[tuple[str, Outcome, float]]:
    """Run loads on one server; yield the outcome and the server's CPU seconds of each."""
    for topic in ("Send", "Deliver"):
        _make(server.address, topic)
    sent = 0
    for load in loads:
        arguments = {
            "send64": ["send", endpoints, "Send", SENDERS, BODY_BYTES, seconds],
            "receive64": ["receive", endpoints, "Send", "CG_Send", SENDERS, sent, RECEIVE_LIMIT_S],
            "deliver200": ["deliver", endpoints, "Deliver", "CG_Deliver", RATE, seconds],
        }[load]
        before = cpu_seconds(server.pid)
        command = java_command(home, "SdkLoad", SDK)
        outcome = run_load([str(word) for word in arguments], home, seconds + RECEIVE_LIMIT_S + _SLACK_S, command)
        yield load, outcome, cpu_seconds(server.pid) - before
        sent = outcome.done if load == "send64" else sent
