"""Sections on problems: retries, dead letters, lag, damage."""

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.charts import Row, by_value, levels_figure, shown
from rocketbroker.analytics.report.colours import Colours
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import COUNT, MILLIS, TEXT, TIME, Figure, Kind, Section, Unit
from rocketbroker.analytics.report.histogram import spread


def retries(facts: StoreFacts) -> Section:
    """Show the retried messages by attempt."""
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
    series = colours.series([str(attempt) for attempt in attempts], heights)
    figure = Figure("retries", Kind.BARS, "attempt", "messages", Unit.COUNT, series) if heights else None
    units = {"Group": TEXT, "Attempt": COUNT, "Messages": COUNT, "Half ≤": MILLIS, "99 % ≤": MILLIS, "Longest": MILLIS}
    note = (
        "Messages stored in the %RETRY% topics of groups after a failed consumption, and their age then. Attempt 1 is "
        "the first retry."
    )
    return Section("retries", "Retries", note, figure, shown(units, rows), "No message was retried.")


def dead_letters(facts: StoreFacts) -> Section:
    """Show messages that groups gave up."""
    found = facts.dead_letters.sort_by([("messages", "descending"), ("group", "ascending"), ("origin", "ascending")])
    rows: list[Row] = []
    for row in found.to_pylist():
        age = None if None in {facts.last_ms, row["first_ms"]} else facts.last_ms - row["first_ms"]
        rows.append((row["group"], row["origin"], row["messages"], row["first_ms"], row["last_ms"], age))
    units = {"Group": TEXT, "From topic": TEXT, "Messages": COUNT, "First": TIME, "Last": TIME, "Oldest's age": MILLIS}
    note = "Messages that a group gave up after its last attempt. Ages are measured at the store's last message."
    bars = [(f"{row[0]} ← {row[1]}", float(row[2] or 0), str(row[0])) for row in rows]
    figure = levels_figure("dead-letters", "messages", bars, Colours.of(found, "group"))
    table = shown(units, rows)
    return Section("dead-letters", "Dead letters", note, figure, table, "No message was given up.", alarm=bool(rows))


def lag(facts: StoreFacts) -> Section:
    """Show the lag of groups."""
    rows: list[Row] = [
        (row["group"], row["topic"], row["queue_id"], row["broker"], row["committed"], row["end"], row["lag"])
        for row in facts.lag.to_pylist()
    ]
    units = {"Group": TEXT, "Topic": TEXT, "Queue": TEXT, "Broker": TEXT, "Offset": COUNT, "End": COUNT, "Lag": COUNT}
    totals = facts.lag.group_by(["group", "topic"]).aggregate([("lag", "sum")])
    totals = totals.sort_by([("lag_sum", "descending"), ("group", "ascending"), ("topic", "ascending")])
    bars = [(f"{row['group']} · {row['topic']}", float(row["lag_sum"]), row["group"]) for row in totals.to_pylist()]
    by_group = pa.table({"group": totals.column("group"), "messages": totals.column("lag_sum")})
    figure = levels_figure("lag", "messages not consumed", bars, Colours.of(by_group, "group"))
    note = "Messages between the committed offset of a group and the end of the queue."
    empty = "Lag is shown for whole stores only." if facts.asked else "No group has committed an offset."
    return Section("lag", "Lag", note, figure, shown(units, rows), empty)


def corrupt(facts: StoreFacts) -> Section:
    """Show ranges of the log without a readable message."""
    rows: list[Row] = [
        (row["broker"], row["path"].rpartition("/")[2], row["position"], row["length"], row["reason"])
        for row in facts.corrupt.to_pylist()
    ]
    units = {"Broker": TEXT, "File": TEXT, "Position": COUNT, "Bytes": COUNT, "Reason": TEXT}
    lengths = by_value(facts.corrupt, "path")
    bars = [
        (path.rpartition("/")[2], float(pc.sum(mine.column("length")).as_py()), mine.column("broker")[0].as_py())
        for path, mine in lengths.items()
    ]
    by_broker = pa.table({"broker": facts.corrupt.column("broker"), "messages": facts.corrupt.column("length")})
    figure = levels_figure("corrupt", "damaged bytes", bars, Colours.of(by_broker, "broker"))
    note = "Ranges of commit-log files without a readable message. All other numbers include the messages around them."
    table = shown(units, rows)
    return Section("corrupt", "Damaged ranges", note, figure, table, "All of the log is readable.", alarm=bool(rows))
