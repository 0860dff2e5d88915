"""``mqadmin top``: a screen of rates, lag, clients and disks that is drawn again and again."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.top_data import AT_A_LOOK, Collector, Snapshot
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner

_KEYS = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown", b"\x1b[H": "home", b"\x1b[F": "end", b"\x1b[1~": "home",
    b"\x1b[4~": "end", b"\x1b": "escape", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace",
}  # fmt: skip
# Seconds between two looks at the age of the figures.
_AGE_S = 1.0
_EACH_KEY = sorted(_KEYS, key=len, reverse=True)


@sub_command("top", "Watch rates, lag, clients and disks on a live screen.")
async def top(
    admin: AdminClient,
    interval: Annotated[
        float, typer.Option("-i", "--interval", min=0.5, max=3600, metavar="SECONDS", help="Time between two looks.")
    ] = 2,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", metavar="CLUSTER", help="Watch this cluster only.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="COUNT", help="Groups, and topics, to ask at each look; 100, in a snapshot all."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot, as is done without a terminal.")] = False,
    as_json: bool = False,
) -> Report:
    """Watch rates, lag, clients and disks on a live screen; without a terminal, print one snapshot."""
    clock = SystemClock()
    is_live = not (once or as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    at_a_look = limit or (AT_A_LOOK if is_live else sys.maxsize)
    collector = Collector(admin, clock.time_ms, clock.monotonic, cluster, at_a_look)
    snapshot = await collector.look()
    if not is_live:
        return snapshot_report(snapshot)
    await watch(collector, snapshot, interval)
    return Report({}, [])


def snapshot_report(snapshot: Snapshot) -> Report:
    """Return a snapshot as tables; failures name the brokers and groups that did not answer."""
    brokers = [
        [row.cluster, row.broker, str(row.broker_id), row.addr,
         _known(f"{row.in_rate:.2f}", row.runtime), _known(f"{row.out_rate:.2f}", row.runtime),
         "-" if row.disk is None else f"{row.disk:.4f}", row.version or "-"]
        for row in snapshot.brokers
    ]  # fmt: skip
    groups = [
        [
            row.group,
            *(
                _known(text, row.queues or not row.problem)
                for text in (str(row.lag), f"{row.out_rate:.2f}", str(len(row.clients)), str(len(row.queues)))
            ),
        ]
        for row in snapshot.groups
    ]
    topics = [
        [
            row.topic,
            *(
                _known(text, row.queues or not row.problem)
                for text in (f"{row.in_rate:.2f}", str(row.messages), str(len(row.queues)))
            ),
        ]
        for row in snapshot.topics
    ]
    parts: list[str | Table] = [
        _table("#Cluster #Broker #BID #Addr #In/s #Out/s #Disk #Version", 4, brokers),
        "",
        _table("#Group #Lag #Out/s #Clients #Queues", 1, groups),
        "",
        _table("#Topic #In/s #Messages #Queues", 1, topics),
    ]
    failures = [f"{row.addr}: {row.problem}" for row in snapshot.brokers if row.problem]
    failures += [f"{row.group}: {row.problem}" for row in snapshot.groups if row.problem]
    failures += [f"{row.topic}: {row.problem}" for row in snapshot.topics if row.problem]
    return Report(snapshot, parts, failures)


def _known(text: str, is_known: object) -> str:
    """Return the text of a figure, ``-`` where nobody told it."""
    return text if is_known else "-"


def _table(titles: str, numbers_from: int, rows: list[list[str]]) -> Table:
    return Table([Column(title, at >= numbers_from) for at, title in enumerate(titles.split())], rows)


async def watch(collector: Collector, snapshot: Snapshot, interval_s: float) -> None:
    """Draw the screen until q or Ctrl-C is pressed.

    Args:
        collector: looks at the cluster.
        snapshot: the first look.
        interval_s: seconds between the end of a look and the next one.
    """
    from rich.console import Console, Group
    from rich.live import Live

    from rocketbroker.app.mqadmin.top_screen import Screen

    loop = asyncio.get_running_loop()
    screen, changed, seen = Screen(), asyncio.Event(), loop.time()
    console, tasks = Console(highlight=False, markup=False, emoji=False), TaskOwner("top")

    async def look() -> None:
        nonlocal snapshot, seen
        while not screen.is_over:
            await asyncio.sleep(interval_s)
            if screen.is_paused:
                continue
            screen.is_asking = True
            try:
                snapshot = await collector.look()
                screen.failure, seen = "", loop.time()
            except RocketBrokerError as error:
                screen.failure = str(error)
            screen.is_asking = False
            screen.grow_old(loop.time() - seen, interval_s)
            changed.set()

    def grow_old() -> None:
        if screen.grow_old(loop.time() - seen, interval_s):
            changed.set()

    def read_keys() -> None:
        data = os.read(sys.stdin.fileno(), 1024)
        for key in keys_in(data) if data else ["q"]:
            screen.press(key, snapshot, max(console.height // 2, 1))
        changed.set()

    def end() -> None:
        screen.is_over = True
        changed.set()

    with _single_keys(sys.stdin.fileno()), Live(console=console, screen=True, auto_refresh=False) as live:
        loop.add_reader(sys.stdin.fileno(), read_keys)
        loop.add_signal_handler(signal.SIGINT, end)
        loop.add_signal_handler(signal.SIGTERM, end)
        loop.add_signal_handler(signal.SIGWINCH, changed.set)
        looking = tasks.start(look(), "look")
        looking.add_done_callback(lambda _task: changed.set())
        tasks.every(_AGE_S, grow_old, "grow old")
        try:
            while not screen.is_over:
                live.update(Group(*screen.lines(snapshot, console.width, console.height)), refresh=True)
                await changed.wait()
                changed.clear()
                if looking.done():
                    looking.result()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH):
                loop.remove_signal_handler(number)
            await tasks.stop()


@contextmanager
def _single_keys(descriptor: int) -> Iterator[None]:
    """Let a terminal pass on each key at once and without an echo."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def keys_in(data: bytes) -> Iterator[str]:
    """Yield the names of the keys that a terminal has sent; sequences of other keys are skipped."""
    at = 0
    while at < len(data):
        found = next((key for key in _EACH_KEY if data.startswith(key, at)), None)
        if found == b"\x1b" and data[at + 1 : at + 2] in {b"[", b"O"}:
            at += 2
            while at < len(data) and not 0x40 <= data[at] <= 0x7E:
                at += 1
            at += 1
            continue
        if found is not None:
            yield _KEYS[found]
            at += len(found)
            continue
        end = at + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        yield data[at:end].decode(errors="replace")
        at = end
