"""Bounds of the send path: our broker, one that answers without storing, and one that stores without parsing.

    bench/run bounds [--rounds 3] [--seconds 10] [--warm 5] [--only sync64,async8]

The official Java client sends to each of them in turn.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench import load
from bench.harness import Rounds, commit
from bench.load import chosen
from bench.servers import Side, our_side, running
from bench.side_by_side import measure_scenario
from rocketbroker.app import broker_startup
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.header_template import HeaderTemplate, decode_plain, make_template
from rocketbroker.codec.remoting.hot_responses import frames, send_responses
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.processor.support.send_runs import SendRuns
from rocketbroker.store.commitlog.put_message import MessageRun
from rocketbroker.transport import frame_reader
from tests.support.java_toolchain import missing_tools

_SEND = b'{"code":310,'
# The opaque is one of the last fields.
_TAIL = 96
_find_opaque = re.compile(rb'"opaque":([0-9]+)').search


class _OpaqueAlone:
    """Template that any send fits and whose only value is the opaque."""

    def __init__(self, template: HeaderTemplate) -> None:
        self.command = template.command

    @staticmethod
    def fullmatch(data: memoryview, start: int, end: int) -> Any:
        """Match the opaque of a send."""
        return _find_opaque(data, max(start, end - _TAIL), end) if data[start : start + len(_SEND)] == _SEND else None


def _answer(runs: SendRuns, connection: Connection, command: Command, values: Any, _bodies: Any) -> bytes | None:
    """Answer sends without storing them."""
    if runs.target(connection, command.header) is None:
        return None
    queue_ids, _, _, opaques = zip(*values, strict=True)
    return _answers(runs, opaques, queue_ids, [0] * len(values), [0] * len(values))


def _store(runs: SendRuns, connection: Connection, command: Command, values: Any, bodies: Any) -> bytes | None:
    """Store sends that are all taken to be like one."""
    header, count = command.header, len(values)
    plain = decode_plain([json.dumps(header.properties)[1:-1].encode()])
    target = runs.target(connection, header)
    if target is None or plain is None:
        return None
    properties, found = plain
    queue_ids = [number % target.queue_nums for number in range(count)]
    result = runs._put(
        MessageRun(
            header.topic,
            queue_ids,
            bodies,
            [properties[0] + runs.own.encoded] * count,
            [header.born_timestamp] * count,
            found * count,
            header.flag,
            header.sys_flag,
            connection.remote_host,
            0,
        )
    )
    if result is None:
        return None
    texts = [b"%d" % queue_id for queue_id in queue_ids]
    opaques = [each[0] for each in values]
    return _answers(runs, opaques, texts, result.queue_offsets, result.physical_offsets)


def _answers(
    runs: SendRuns,
    opaques: Sequence[bytes],
    queue_ids: Sequence[bytes],
    queue_offsets: Sequence[int],
    physical_offsets: Sequence[int],
) -> bytes:
    keys = [b"0" * 32] * len(opaques)
    return frames(send_responses(opaques, queue_ids, queue_offsets, physical_offsets, keys, runs.own.run_template))


def shorten(bound: str, replace: Callable[[object, str, object], None] = setattr) -> None:
    """Replace the parts of the send path that a bound leaves out."""
    if bound == "answers":
        replace(SendRuns, "process", _answer)
        return

    def make(*arguments: Any) -> _OpaqueAlone | None:
        template = make_template(*arguments)
        return None if template is None else _OpaqueAlone(template)

    replace(frame_reader, "make_template", make)
    replace(SendRuns, "process", _store)


_ROOT = Path(__file__).resolve().parent.parent
_WHOLE = "whole"
_BOUNDS = {"answers": "answers without storing", "stores": "stores without parsing"}

Figures = Mapping[tuple[str, str], list[tuple[float, float]]]


def sides() -> list[Side]:
    """Return our broker and the shortened ones."""
    whole = our_side()
    namesrv, broker = whole.namesrv_command, whole.broker_command
    shortened = [sys.executable, "-m", "bench.bounds"]
    return [Side(_WHOLE, namesrv, broker), *(Side(name, namesrv, [*shortened, name]) for name in _BOUNDS)]


def table(figures: Figures) -> Iterator[str]:
    """Yield a Markdown table of the median rate and CPU time of each load on each broker."""
    yield "| load | broker | messages/s | CPU, µs a message |"
    yield "|---|---|---:|---:|"
    for (load_name, side), rounds in figures.items():
        rates, cpus = zip(*rounds, strict=True)
        yield f"| {load_name} | {_BOUNDS.get(side, side)} | {median(rates):,.0f} | {median(cpus):.2f} |"


def bounds(
    rounds: Rounds = 3,
    seconds: Annotated[int, typer.Option(min=3, help="Length of each load.")] = 10,
    warm: Annotated[int, typer.Option(min=3, help="Seconds of each unrecorded warm-up load.")] = 5,
    only: Annotated[str, typer.Option(metavar="A,B", help="Loads that send one message at a time.")] = "sync64,async8",
) -> None:
    """Print rate and CPU time of each load on each broker."""
    reason = missing_tools()
    if reason:
        raise typer.BadParameter(reason)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    load.prepare()
    for number in range(1, rounds + 1):
        for side in sides() if number % 2 else reversed(sides()):
            with running(side, None, []) as servers:
                for scenario in chosen(only):
                    measure_scenario(scenario, servers, warm, 0)
                    outcome, cpu = measure_scenario(scenario, servers, seconds, 0)
                    assert outcome.rate is not None, outcome.error
                    found[scenario.name, side.name].append((outcome.rate, cpu / outcome.done * 1e6))
    print(f"commit {commit()}\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    shorten(sys.argv.pop(1))
    broker_startup.main()
