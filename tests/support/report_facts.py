"""Facts of a report, made by hand: what a store of a few messages would give."""

from typing import Any

import pyarrow as pa

from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.facts import StoreFacts

BEGIN_MS = 1_795_255_020_000  # a full minute
MINUTE_MS = 60_000


def table(schema: pa.Schema, *rows: tuple[Any, ...]) -> pa.Table:
    """Return the rows by position."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def store_facts(**given: Any) -> StoreFacts:
    """Return the facts of two topics, each of which may be replaced."""
    values: dict[str, Any] = {
        "stores": (("a", "/stores/a"),),
        "asked": "",
        "first_ms": BEGIN_MS,
        "last_ms": BEGIN_MS + 5 * MINUTE_MS,
        "keys_missed": 0,
        "traffic": table(
            facts.TRAFFIC,
            ("orders", BEGIN_MS, 30, 3000),
            ("orders", BEGIN_MS + 2 * MINUTE_MS, 10, 1000),
            ("mail", BEGIN_MS + 5 * MINUTE_MS, 5, 9000),
        ),
        "sizes": table(facts.SIZES, ("orders", 100, 40, 4000, 100), ("mail", 1080, 5, 9000, 1800)),
        "keys": table(facts.KEYS, ("orders", "o-1", 20), ("orders", "o-2", 1)),
        "queues": table(
            facts.QUEUES,
            ("a", "orders", 0, 30, 3000, 30),
            ("a", "orders", 1, 10, 1000, 10),
            ("a", "mail", 0, 5, 9000, 5),
        ),
        "delays": table(facts.DELAYS, ("orders", 3, 38, 3), ("orders", -1, 2, -7), ("mail", 1100, 5, 2009)),
        "retries": table(facts.RETRIES, ("billing", 1, 1900, 4, 10_050), ("billing", 2, 2201, 1, 40_100)),
        "dead_letters": table(facts.DEAD_LETTERS, ("billing", "orders", 2, BEGIN_MS, BEGIN_MS + MINUTE_MS)),
        "lag": table(facts.LAG, ("a", "billing", "orders", 0, 12, 30, 18), ("a", "billing", "orders", 1, 10, 10, 0)),
        "corrupt": table(facts.CORRUPT, ("a", "/stores/a/commitlog/" + "0" * 20, 512, 90, "record-magic")),
    }
    return StoreFacts(**values | given)


def no_facts() -> StoreFacts:
    """Return the facts of an empty store."""
    names = ("traffic", "sizes", "keys", "queues", "delays", "retries", "dead_letters", "lag", "corrupt")
    empty = {name: getattr(facts, name.upper()).empty_table() for name in names}
    return store_facts(first_ms=None, last_ms=None, **empty)
