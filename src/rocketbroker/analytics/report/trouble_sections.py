"""Sections on what goes wrong: retries, dead letters, lag, damage."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.charts import Row, by_value, levels_figure, shown
from rocketbroker.analytics.report.colours import Colours
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import Column, Figure, Kind, Section, Unit
from rocketbroker.analytics.report.histogram import spread

_GROUP: Final = Column("Group", Unit.TEXT)


def retries(facts: StoreFacts) -> Section:
    """Show messages that consumers sent back, by attempt."""
    colours, found = Colours.of(facts.retries, "group"), facts.retries
    attempts: list[int] = sorted(pc.unique(found.column("attempt")).to_pylist())
    rows: list[Row] = []
    heights: dict[str, list[float]] = {}
    for group, mine in by_value(found, "group").items():
        by_attempt = by_value(mine, "attempt")
        heights[group] = [
            float(pc.sum(by_attempt[each].column("messages")).as_py()) if each in by_attempt else 0.0
            for each in attempts
        ]
        for attempt in sorted(by_attempt):
            one = spread(by_attempt[attempt], "delay_class")
            rows.append((group, attempt, one.messages, one.p50, one.p99, one.most))
    figure = None
    if heights:
        figure = Figure(
            "retries", Kind.BARS, "attempt", "messages", Unit.COUNT, colours.series([str(a) for a in attempts], heights)
        )
    columns = (
        _GROUP,
        Column("Attempt", Unit.COUNT),
        Column("Messages", Unit.COUNT),
        Column("Half ≤", Unit.MILLIS),
        Column("99 % ≤", Unit.MILLIS),
        Column("Longest", Unit.MILLIS),
    )
    note = (
        "Messages stored in the groups' %RETRY% topics after a failed consumption, and how long after they were made. "
        "Attempt 1 is the first repetition."
    )
    return Section("retries", "Retries", note, figure, shown(columns, rows), "No message was sent back.")


def dead_letters(facts: StoreFacts) -> Section:
    """Show messages that groups gave up."""
    found = facts.dead_letters.sort_by([("messages", "descending"), ("group", "ascending"), ("origin", "ascending")])
    rows: list[Row] = []
    for row in found.to_pylist():
        age = None if None in {facts.last_ms, row["first_ms"]} else facts.last_ms - row["first_ms"]
        rows.append((row["group"], row["origin"], row["messages"], row["first_ms"], row["last_ms"], age))
    columns = (
        _GROUP,
        Column("From topic", Unit.TEXT),
        Column("Messages", Unit.COUNT),
        Column("First", Unit.TIME),
        Column("Last", Unit.TIME),
        Column("Oldest's age", Unit.MILLIS),
    )
    note = "Messages that no attempt of a group could consume. Ages are those at the store's last message."
    bars = [(f"{row[0]} ← {row[1]}", float(row[2] or 0), str(row[0])) for row in rows]
    figure = levels_figure("dead-letters", "messages", bars, Colours.of(found, "group"))
    return Section(
        "dead-letters", "Dead letters", note, figure, shown(columns, rows), "There are none.", alarm=bool(rows)
    )


def lag(facts: StoreFacts) -> Section:
    """Show what groups have not consumed yet."""
    rows: list[Row] = [
        (row["group"], row["topic"], row["queue_id"], row["broker"], row["committed"], row["end"], row["lag"])
        for row in facts.lag.to_pylist()
    ]
    columns = (
        _GROUP,
        Column("Topic", Unit.TEXT),
        Column("Queue", Unit.TEXT),
        Column("Broker", Unit.TEXT),
        Column("Consumed to", Unit.COUNT),
        Column("End", Unit.COUNT),
        Column("Lag", Unit.COUNT),
    )
    totals = facts.lag.group_by(["group", "topic"]).aggregate([("lag", "sum")])
    totals = totals.sort_by([("lag_sum", "descending"), ("group", "ascending"), ("topic", "ascending")])
    bars = [(f"{row['group']} · {row['topic']}", float(row["lag_sum"]), row["group"]) for row in totals.to_pylist()]
    by_group = pa.table({"group": totals.column("group"), "messages": totals.column("lag_sum")})
    figure = levels_figure("lag", "messages not consumed", bars, Colours.of(by_group, "group"))
    note = "What lies between the offset that a group has committed and the end of the queue."
    empty = "Lag is shown for whole stores only." if facts.asked else "No group has committed an offset."
    return Section("lag", "Lag", note, figure, shown(columns, rows), empty)


def corrupt(facts: StoreFacts) -> Section:
    """Show ranges of the log without a readable message."""
    rows: list[Row] = [
        (row["broker"], row["path"].rpartition("/")[2], row["position"], row["length"], row["reason"])
        for row in facts.corrupt.to_pylist()
    ]
    columns = (
        Column("Broker", Unit.TEXT),
        Column("File", Unit.TEXT),
        Column("Position", Unit.COUNT),
        Column("Bytes", Unit.COUNT),
        Column("Reason", Unit.TEXT),
    )
    lengths = by_value(facts.corrupt, "path")
    bars = [
        (path.rpartition("/")[2], float(pc.sum(mine.column("length")).as_py()), mine.column("broker")[0].as_py())
        for path, mine in lengths.items()
    ]
    by_broker = pa.table({"broker": facts.corrupt.column("broker"), "messages": facts.corrupt.column("length")})
    figure = levels_figure("corrupt", "damaged bytes", bars, Colours.of(by_broker, "broker"))
    note = (
        "Ranges of commit-log files that no message could be read from; what lies around them is in all other numbers."
    )
    return Section(
        "corrupt", "Damaged ranges", note, figure, shown(columns, rows), "All of the log is readable.", alarm=bool(rows)
    )
