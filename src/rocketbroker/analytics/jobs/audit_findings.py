"""Rows of an audit: places where a rule of ``codec/storefile/audit_rules.py`` is broken."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.jobs.local_frame import local_frame
from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity

#: Columns of a finding. What a rule says nothing of is null.
COLUMNS: Final = ("broker", "rule", "severity", "topic", "queue_id", "queue_offset", "physical_offset", "detail")
# So many rows are brought to the driver rather than computed where they are needed.
_FEW: Final = 10_000
# Rules about entries of a message: they say nothing once the message's file was removed.
_OF_ONE_PLACE: Final = (
    AuditRule.QUEUE_ENTRY_MISMATCH,
    AuditRule.QUEUE_ENTRY_UNREADABLE,
    AuditRule.MESSAGE_NOT_QUEUED,
    AuditRule.INDEX_ENTRY_MISMATCH,
    AuditRule.INDEX_ENTRY_UNREADABLE,
    AuditRule.INDEX_MISSING_KEY,
)
_TYPES: Final = {"queue_id": "int", "queue_offset": "bigint", "physical_offset": "bigint"}


class Kept:
    """Frames that several queries are made from: each is computed once, and Spark plans what is made from it apart.

    Without, the plan of an audit would be so large that planning took far longer than running it. Use as a context
    manager, or call ``release`` when nothing made from the frames is needed any more.
    """

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return ``frame``, to be computed once."""
        self._frames.append(frame.persist())
        return self._frames[-1]

    def keep_few(self, frame: DataFrame) -> DataFrame:
        """Return ``frame``, of which few rows or none are expected: they are computed now, and Spark plans with them.

        What is joined with no rows is left out of a plan. Should there be many they are kept.
        """
        rows = frame.limit(_FEW + 1).toArrow()
        if rows.num_rows > _FEW:
            return self.keep(frame)
        return local_frame(frame.sparkSession, rows)

    def release(self) -> None:
        """Let go of all."""
        while self._frames:
            self._frames.pop().unpersist()

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def findings(rows: DataFrame, rule: AuditRule, detail: Column, mended: Column | None = None) -> DataFrame:
    """Return a finding for each of ``rows``, with those of its columns that findings have.

    Args:
        rows: with ``broker``.
        rule: the rule that is broken.
        detail: what stands there, and what should.
        mended: where the next start mends it, so that it is a warning.
    """
    severity: Column = F.lit(rule.severity.value)
    if mended is not None:
        severity = F.when(F.coalesce(mended, F.lit(False)), Severity.WARNING.value).otherwise(severity)
    known = {"rule": F.lit(rule.value), "severity": severity, "detail": detail}
    return rows.select(*[known[name].alias(name) if name in known else _own(rows, name) for name in COLUMNS])


def _own(rows: DataFrame, name: str) -> Column:
    kind = _TYPES.get(name, "string")
    return (F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name)


def together(parts: list[DataFrame]) -> DataFrame:
    """Return the findings of all ``parts``."""
    return reduce(DataFrame.unionByName, parts)


def but_for_removed(found: DataFrame, begins: Mapping[str, int]) -> DataFrame:
    """Drop the findings that a broker caused by removing files of the log during the audit.

    Args:
        found: with ``COLUMNS``.
        begins: by broker the physical offset at which the log begins after all was read.
    """
    is_of_place = F.col("rule").isin(*[rule.value for rule in _OF_ONE_PLACE]) & (F.col("physical_offset") >= 0)
    for broker, begin in begins.items():
        is_removed = is_of_place & (F.col("broker") == broker) & (F.col("physical_offset") < begin)
        found = found.where(~F.coalesce(is_removed, F.lit(False)))
    return found


def most_of_each_rule(found: DataFrame, limit: int) -> DataFrame:
    """``limit`` findings of each broker, rule and severity, the first by place, with ``count``, how many there are."""
    kind = Window.partitionBy("broker", "rule", "severity")
    place = kind.orderBy("physical_offset", "topic", "queue_id", "queue_offset", "detail")
    numbered = found.select("*", F.count("*").over(kind).alias("count"), F.row_number().over(place).alias("number"))
    return numbered.where(F.col("number") <= limit).drop("number")
