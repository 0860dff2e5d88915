"""The sections of the page, from the facts."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.charts import (
    BYTES_BORDERS,
    MILLIS_BORDERS,
    Row,
    by_value,
    descending,
    histogram_figure,
    levels_figure,
    shown,
    spread,
)
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import (
    BYTES,
    COUNT,
    MILLIS,
    SHARE,
    TEXT,
    TIME,
    Colours,
    Figure,
    Kind,
    Section,
    ShownTable,
    Tile,
    Unit,
    show,
)

_MINUTE_MS: Final = 60_000
# Most points of a time axis, fewest points of an area, and the minutes that one point may cover.
_POINTS: Final = 300
_FEWEST: Final = 6
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080)


def traffic(facts: StoreFacts, colours: Colours) -> Section:
    """Show messages per minute by topic."""
    topics, figure = by_value(facts.traffic, "topic"), None
    # A damaged record may have a time outside the calendar: it counts in the total, but in no minute.
    timed = facts.traffic.filter(pc.is_valid(facts.traffic.column("from_ms")))
    of_minutes = by_value(timed, "topic")
    all_messages = pc.sum(facts.traffic.column("messages")).as_py() or 0
    rows: list[Row] = []
    for topic, mine in topics.items():
        messages = pc.sum(mine.column("messages")).as_py()
        most = pc.max(of_minutes[topic].column("messages")).as_py() if topic in of_minutes else None
        rows.append((topic, messages, messages / all_messages, pc.sum(mine.column("bytes")).as_py(), most))
    if timed.num_rows:
        step, times = _time_axis(timed.column("from_ms"))
        lines = {topic: _per_minute(mine, times, step) for topic, mine in of_minutes.items()}
        # An area over one minute has no width, and a time axis without a span shows years.
        kind, places = (Kind.AREAS, times.tolist()) if len(times) >= _FEWEST else (Kind.BARS, _labels(times))
        figure = Figure("traffic", kind, "", "messages per minute", Unit.COUNT, colours.series(places, lines))
    units = {"Topic": TEXT, "Messages": COUNT, "Share": SHARE, "Bytes": BYTES, "Most in a minute": COUNT}
    note = "Messages stored per minute, by topic. Times are store times in UTC."
    return Section("traffic", "Traffic", note, figure, shown(units, descending(rows)), "No message is stored.")


def _time_axis(minutes: pa.ChunkedArray) -> tuple[int, Any]:
    """Return the minutes per point, and the times of all points in ms."""
    found = pc.min_max(minutes).as_py()
    span = (found["max"] - found["min"]) // _MINUTE_MS + 1
    step = next((each for each in _STEPS if span <= each * _POINTS), -(-span // _POINTS)) * _MINUTE_MS
    return step, np.arange(found["min"] // step * step, found["max"] + 1, step, dtype=np.int64)


def _labels(times: Any) -> list[str]:
    """Return the times as labels of bars, to the minute."""
    return [show(time, Unit.TIME).removesuffix(":00") for time in times.tolist()]


def _per_minute(rows: pa.Table, times: Any, step: int) -> list[float]:
    places = (rows.column("from_ms").to_numpy() - times[0]) // step
    counts = np.bincount(places, rows.column("messages").to_numpy(), len(times))
    return [round(float(count), 2) for count in counts / (step // _MINUTE_MS)]


def sizes(facts: StoreFacts, colours: Colours) -> Section:
    """Show the sizes of messages."""
    topics = by_value(facts.sizes, "topic")
    rows: list[Row] = []
    for topic, mine in topics.items():
        found = spread(mine, "size_class")
        mean = pc.sum(mine.column("total")).as_py() / found.messages
        rows.append((topic, found.messages, mean, found.p50, found.p99, found.most))
    units = {"Topic": TEXT, "Messages": COUNT, "Mean": BYTES, "Half ≤": BYTES, "99 % ≤": BYTES, "Largest": BYTES}
    note = (
        "Bytes of whole records: stored body, properties and a head of about 100 bytes. Percentiles are at most 1 % "
        "too high."
    )
    figure = histogram_figure("sizes", topics, "size_class", BYTES_BORDERS, Unit.BYTES, colours)
    return Section("sizes", "Sizes", note, figure, shown(units, descending(rows)), "No message is stored.")


def queues(facts: StoreFacts, colours: Colours) -> Section:
    """Show how evenly topics fill their queues."""
    rows: list[Row] = []
    for topic, mine in by_value(facts.queues, "topic").items():
        counts = mine.column("messages").to_pylist()
        if len(counts) < 2:
            continue
        mean, place = sum(counts) / len(counts), int(np.argmax(counts))
        busiest = str(mine.column("queue_id")[place])
        if len(facts.stores) > 1:
            busiest += f" of {mine.column('broker')[place]}"
        rows.append((topic, max(counts) / mean, len(counts), min(counts), mean, max(counts), busiest))
    rows = descending(rows)
    units = {"Topic": TEXT, "Skew": COUNT, "Queues": COUNT, "Min": COUNT, "Mean": COUNT, "Max": COUNT, "Busiest": TEXT}
    note = "Skew is the messages of the busiest queue over the mean: 1 is even. Queues without messages do not count."
    bars = [(str(row[0]), float(row[1] or 0), str(row[0])) for row in rows]
    figure = levels_figure("queues", "busiest queue over the mean", bars, colours)
    return Section("queues", "Queues", note, figure, shown(units, rows), "No topic has messages in several queues.")


def keys(facts: StoreFacts, colours: Colours) -> Section:
    """Show the keys with the most messages."""
    totals = {topic: pc.sum(mine.column("messages")).as_py() for topic, mine in by_value(facts.queues, "topic").items()}
    rows: list[Row] = [
        (row["key"], row["topic"], row["messages"], row["messages"] / totals[row["topic"]])
        for row in facts.keys.to_pylist()
        if row["messages"] > 1
    ]
    units = {"Key": TEXT, "Topic": TEXT, "Messages": COUNT, "Of its topic": SHARE}
    note = "Keys (property KEYS) with the most messages in a topic."
    if facts.keys_missed:
        note += f" There are too many keys for exact counts: each may have up to {facts.keys_missed:,} more messages."
    bars = [(str(row[0]), float(row[2] or 0), str(row[1])) for row in rows]
    figure = levels_figure("keys", "messages", bars, colours)
    return Section("keys", "Hot keys", note, figure, shown(units, rows), "No two messages of a topic share a key.")


def delays(facts: StoreFacts, colours: Colours) -> Section:
    """Show how long messages took from their producer to the log."""
    topics = by_value(facts.delays, "topic")
    rows: list[Row] = []
    for topic, mine in topics.items():
        found = spread(mine, "delay_class")
        rows.append((topic, found.messages, found.p50, found.p90, found.p99, found.most, found.ahead))
    units = {
        "Topic": TEXT,
        "Messages": COUNT,
        "Half ≤": MILLIS,
        "90 % ≤": MILLIS,
        "99 % ≤": MILLIS,
        "Longest": MILLIS,
        "Clock ahead": COUNT,
    }
    note = (
        "Time from the creation of a message, by the producer's clock, to its storage by the broker; for delayed "
        "messages it includes the delay. Messages from producers whose clock was ahead are in the first bar. Retries "
        "and dead letters have their own sections."
    )
    figure = histogram_figure("delays", topics, "delay_class", MILLIS_BORDERS, Unit.MILLIS, colours)
    table = shown(units, descending(rows))
    return Section("delays", "End-to-end delays", note, figure, table, "No message is stored.")


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


def sections(facts: StoreFacts) -> list[Section]:
    """Return all sections in the order of the page."""
    colours = Colours.of(facts.queues, "topic")
    return [
        traffic(facts, colours),
        sizes(facts, colours),
        queues(facts, colours),
        keys(facts, colours),
        delays(facts, colours),
        retries(facts),
        dead_letters(facts),
        lag(facts),
        corrupt(facts),
        brokers(facts),
    ]


def tiles(facts: StoreFacts) -> list[Tile]:
    """Return the numbers at the head of the page."""
    queued = facts.queues
    messages = _total(queued, "messages")
    lost, dead = facts.corrupt.num_rows, _total(facts.dead_letters, "messages")
    spanned = facts.last_ms - facts.first_ms if facts.last_ms is not None and facts.first_ms is not None else None
    behind = _total(facts.lag, "lag")
    return [
        Tile("messages", show(messages, Unit.COUNT)),
        Tile("of the commit log", show(_total(queued, "bytes"), Unit.BYTES)),
        Tile("topics", show(pc.count_distinct(queued.column("topic")).as_py(), Unit.COUNT)),
        Tile("queues", show(queued.num_rows, Unit.COUNT)),
        Tile("from first to last", show(spanned, Unit.MILLIS)),
        Tile("not yet consumed", show(None if facts.asked else behind, Unit.COUNT)),
        Tile("dead letters", show(dead, Unit.COUNT), alarm=dead > 0),
        Tile("damaged ranges", show(lost, Unit.COUNT), alarm=lost > 0),
    ]


def brokers(facts: StoreFacts) -> Section:
    """Show each store with its messages, bytes, topics and queues."""
    rows: list[Sequence[int | str | None]] = []
    for broker, place in facts.stores:
        mine = facts.queues.filter(pc.equal(facts.queues.column("broker"), broker))
        topics = pc.count_distinct(mine.column("topic")).as_py()
        rows.append((broker, place, _total(mine, "messages"), _total(mine, "bytes"), topics, mine.num_rows))
    units = {"Broker": TEXT, "Store": TEXT, "Messages": COUNT, "Bytes": BYTES, "Topics": COUNT, "Queues": COUNT}
    note = (
        "The stores of this page. Each record of the commit log counts: a delayed or retried message counts each time "
        "it was stored."
    )
    return Section("stores", "Stores", note, None, ShownTable(units, rows), "")


def _total(table: pa.Table, name: str) -> int:
    return pc.sum(table.column(name)).as_py() or 0
