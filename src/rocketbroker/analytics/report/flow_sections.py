"""Sections on the flow of messages: traffic, sizes, queues, keys, delays."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.charts import Row, by_value, descending, histogram_figure, levels_figure, shown
from rocketbroker.analytics.report.colours import Colours
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import BYTES, COUNT, MILLIS, SHARE, TEXT, Figure, Kind, Section, Unit
from rocketbroker.analytics.report.histogram import BYTES_BORDERS, MILLIS_BORDERS, spread
from rocketbroker.analytics.report.units import show

_MINUTE_MS: Final = 60_000
# Most points of a time axis, fewest points of an area, and the minutes that one point may cover.
_POINTS: Final = 300
_FEWEST: Final = 6
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080)


def traffic(facts: StoreFacts, colours: Colours) -> Section:
    """Show messages per minute by topic."""
    topics, figure = by_value(facts.traffic, "topic"), None
    # A damaged record may have a time outside the calendar: it counts in the total, but in no minute.
    timed = facts.traffic.filter(pc.is_valid(facts.traffic.column("minute_ms")))
    of_minutes = by_value(timed, "topic")
    all_messages = pc.sum(facts.traffic.column("messages")).as_py() or 0
    rows: list[Row] = []
    for topic, mine in topics.items():
        messages = pc.sum(mine.column("messages")).as_py()
        most = pc.max(of_minutes[topic].column("messages")).as_py() if topic in of_minutes else None
        rows.append((topic, messages, messages / all_messages, pc.sum(mine.column("bytes")).as_py(), most))
    if timed.num_rows:
        step, times = _time_axis(timed.column("minute_ms"))
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
    places = (rows.column("minute_ms").to_numpy() - times[0]) // step
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
