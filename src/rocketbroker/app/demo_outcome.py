"""Outcome of mqdev's demo: numbers, comparison and output."""

from collections import Counter

import msgspec
from rich.console import Console
from rich.table import Table

TOPIC = "DemoTopic"


class Outcome(msgspec.Struct):
    """Numbers of messages by queue for each part of the demo, and the problems found."""

    stored_before: Counter[int] = msgspec.field(default_factory=Counter)
    sent: Counter[int] = msgspec.field(default_factory=Counter)
    received: Counter[int] = msgspec.field(default_factory=Counter)
    counted: Counter[int] = msgspec.field(default_factory=Counter)
    send_s: float = 0.0
    receive_s: float = 0.0
    spark_s: float = 0.0
    problems: list[str] = msgspec.field(default_factory=list)


def disagreements(outcome: Outcome) -> list[str]:
    """Return one line for each queue with different numbers."""
    queues = sorted(outcome.sent | outcome.received | outcome.counted | outcome.stored_before)
    lines = []
    for queue in queues:
        sent, received = outcome.sent[queue], outcome.received[queue]
        counted = outcome.counted[queue] - outcome.stored_before[queue]
        if not sent == received == counted:
            lines.append(f"queue {queue}: {sent} sent, {received} received, {counted} counted")
    return lines


def show(outcome: Outcome, number: int, console: Console) -> None:
    """Print the numbers by queue, the rates and the verdict."""
    table = Table(title=f"{TOPIC} by queue", show_footer=True, title_justify="left")
    table.add_column("Queue", "all")
    for title, counter in (("Sent", outcome.sent), ("Received", outcome.received)):
        table.add_column(title, f"{counter.total():,}", justify="right")
    counted = Counter({queue: outcome.counted[queue] - outcome.stored_before[queue] for queue in outcome.counted})
    table.add_column("Counted by Spark", f"{counted.total():,}", justify="right")
    for queue in sorted(outcome.sent | outcome.received | counted):
        numbers = (outcome.sent[queue], outcome.received[queue], counted[queue])
        table.add_row(str(queue), *(f"{each:,}" for each in numbers))
    console.print(table)
    before = outcome.stored_before.total()
    if before:
        console.print(f"(Spark also counted {before:,} messages of earlier runs in the store.)")
    console.print(f"Sent     {number:,} in {outcome.send_s:.2f} s, {number / outcome.send_s:,.0f} a second")
    came = outcome.received.total()
    console.print(f"Received {came:,} in {outcome.receive_s:.2f} s, {came / outcome.receive_s:,.0f} a second")
    console.print(f"Counted  {counted.total():,} by Spark in {outcome.spark_s:.1f} s, its start included")
    for problem in outcome.problems[:10]:
        console.print(f"PROBLEM: {problem}", markup=False)
    if not outcome.problems:
        console.print(f"Sent, received and counted agree: {number:,} messages, each exactly once.")
