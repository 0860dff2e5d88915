"""The sections of the page, from the facts."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics.report.colours import Colours
from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import BYTES, COUNT, TEXT, Section, ShownTable, Tile, Unit
from rocketbroker.analytics.report.flow_sections import delays, keys, queues, sizes, traffic
from rocketbroker.analytics.report.trouble_sections import corrupt, dead_letters, lag, retries
from rocketbroker.analytics.report.units import show


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
