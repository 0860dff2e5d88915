"""Audit of stores by many machines: the stages of ``audit/store_audit.py``, each spread over Spark's executors.

A task surveys queues and index files, or checks a file of the log, or judges a queue or index file; so a store of a
terabyte has a thousand tasks that read a gigabyte each. What the files of the log tell of a queue is shuffled to the
task that judges it. The driver holds the surveys, which have a few numbers for each queue and file, and the findings
that are kept.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketbroker.analytics.columns.decode_report import NotRead
from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_names import Stores, store_roots
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.jobs.local_audit import plan_store
from rocketbroker.analytics.spark.spark_progress import described
from rocketbroker.audit.findings import Findings
from rocketbroker.audit.index_audit import CheckedIndexFile, IndexFile
from rocketbroker.audit.log_audit import CheckedLog, LogPart, Range
from rocketbroker.audit.queue_audit import QueueSurvey
from rocketbroker.audit.store_audit import (
    Excuses,
    Surveys,
    audit_segment,
    current_begin,
    judge,
    judge_leftovers,
    survey,
    up_to_torn,
)
from rocketbroker.audit.store_files import AuditOptions, StoreFacts
from rocketbroker.audit.table_audit import check_checkpoint_file, check_consumer_offsets
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.common.config.message_store_config import MessageStoreConfig

# Partitions for each core: tasks differ in size.
_SPREAD: Final = 4
_SCHEMA: Final = pa.schema(
    {"broker": pa.string(), "unit": pa.string(), "number": pa.int32(), "kind": pa.string(), "data": pa.binary()}
)
_TYPES: Final = "broker string, unit string, number int, kind string, data binary"


class _Result(NamedTuple):
    """A value between two stages: ``unit`` is the path of a queue or index file, ``number`` a file of the log."""

    kind: str
    value: Any
    unit: str = ""
    number: int = 0


class _Store(NamedTuple):
    """Facts about a store that its tasks need; each stage adds some for the next."""

    root: StoreRoot
    facts: StoreFacts
    surveys: Surveys = Surveys({}, [])
    log: CheckedLog = CheckedLog(0, 0, 0, (), {})
    last: int = 0  # number of the file in which the log ends
    excuses: Excuses = Excuses(np.empty(0, np.int64), {})


# A task of a stage: it adds findings and yields results.
_Work = Callable[[_Store, Any, Findings], Iterable[_Result]]


def _survey(store: _Store, unit: str | IndexFile, findings: Findings) -> Iterator[_Result]:
    yield _Result("survey", survey(open_folder(store.root), store.facts, unit, findings))


def _segment(store: _Store, number: int, findings: Findings) -> Iterator[_Result]:
    found = audit_segment(open_folder(store.root), store.facts, store.surveys, number, findings)
    if found is not None:
        yield _Result("log", found.log)
        for unit, evidence in [*found.queues.items(), *found.index_files.items()]:
            yield _Result("evidence", evidence, unit, number)
        if len(found.missing.offsets):
            yield _Result("leftover", found.missing, "", number)


def _judge(store: _Store, task: tuple[Any, Sequence[Any]], findings: Findings) -> Iterator[_Result]:
    unit, evidence = task
    judged = judge(open_folder(store.root), store.facts, unit, evidence, store.log, findings)
    if isinstance(judged, CheckedIndexFile):
        yield _Result("index", judged, unit.path)
    elif judged is not None:
        unqueued, leads = judged
        if len(leads):
            yield _Result("leads", leads)
        if len(unqueued.offsets):
            yield _Result("leftover", unqueued)


def _leftover(store: _Store, leftover: Any, findings: Findings) -> Iterator[_Result]:
    judge_leftovers(open_folder(store.root), store.facts, leftover, store.excuses, store.log, findings)
    return iter(())


def _worked(work: _Work, store: _Store, task: Any, number: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the results and the findings of a task as rows."""
    findings = Findings(store.facts.options.limit)
    results = [*work(store, task, findings)]
    if findings.counts:
        results.append(_Result("findings", findings, "", number))
    for each in results:
        row = {"broker": store.root.broker, "unit": each.unit, "number": each.number, "kind": each.kind}
        yield row | {"data": pickle.dumps(each.value)}


def _batch(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    # Spark 4.3 reads a batch without rows as the end of the data.
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _load(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - from the driver or a worker of this session


@dataclass
class _Run:
    """One audit: its stages change the stores and add findings."""

    spark: SparkSession
    stores: dict[str, _Store]
    found: dict[str, Findings]

    def frame(self, rows: list[dict[str, Any]]) -> DataFrame:
        """Return rows that are spread over the executors."""
        parts = max(min(len(rows), self.spark.sparkContext.defaultParallelism * _SPREAD), 1)
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA)).repartition(parts)

    def tasks(self, tasks: Iterable[tuple[str, int, Any]]) -> DataFrame:
        """Return a row for each task, given with its broker, and its number among the tasks about it."""
        return self.frame(
            [
                {"broker": broker, "unit": "", "number": number, "kind": "task", "data": pickle.dumps(task)}
                for broker, number, task in tasks
            ]
        )

    def map(self, tasks: DataFrame, work: _Work) -> DataFrame:
        """Do a task for each row."""
        stores = self.stores

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in batch.to_pylist():
                    yield from _batch([*_worked(work, stores[row["broker"]], _load(row["data"]), row["number"])])

        return tasks.mapInArrow(run, _TYPES)

    def judged(self, units: DataFrame, evidence: DataFrame) -> DataFrame:
        """Judge each queue and index file by the evidence about it, which one task gets in the order of the log."""
        stores = self.stores

        def run(rows: pa.Table) -> pa.Table:
            ordered = rows.sort_by([("kind", "descending"), ("number", "ascending")]).to_pylist()
            store, path = stores[ordered[0]["broker"]], ordered[0]["unit"]
            is_known = ordered[0]["kind"] == "unit"
            unit = _load(ordered[0]["data"]) if is_known else path
            evidence = [_load(row["data"]) for row in ordered[is_known:] if row["number"] <= store.last]
            if not is_known and not evidence:
                return _SCHEMA.empty_table()
            return pa.Table.from_pylist([*_worked(_judge, store, (unit, evidence))], _SCHEMA)

        return units.unionByName(evidence).groupBy("broker", "unit").applyInArrow(run, _TYPES)

    def collect(self, results: DataFrame, *kinds: str) -> Iterator[tuple[str, _Result]]:
        """Add the findings of a stage, in the order of its tasks, and yield its results of some kinds with brokers."""
        rows = results.where(F.col("kind").isin("findings", *kinds)).toArrow()
        for row in rows.sort_by([("broker", "ascending"), ("number", "ascending")]).to_pylist():
            broker, value = row["broker"], _load(row["data"])
            if row["kind"] == "findings":
                self.found[broker].extend(value)
            else:
                yield broker, _Result(row["kind"], value, row["unit"], row["number"])


def audit(
    spark: SparkSession,
    stores: Stores,
    options: AuditOptions | None = None,
    delay_levels: Mapping[int, int] | None = None,
) -> tuple[dict[str, Findings], NotRead]:
    """Return the findings in each store by broker, and the ranges of the logs that hold no readable record.

    ``delay_levels`` has the milliseconds by level, RocketMQ's by default.

    Raises:
        StoreError: a place is not a store, or a file was removed after it was listed.
    """
    options = options or AuditOptions()
    if delay_levels is None:
        delay_levels = parse_delay_levels(MessageStoreConfig().message_delay_level)
    run, gaps, units = _Run(spark, {}, {}), dict[str, list[Range]](), list[tuple[str, int, Any]]()
    for root in store_roots(stores):
        broker = root.broker
        _, (facts, found, gaps[broker]), run.found[broker] = plan_store(root, options, delay_levels)
        run.stores[broker] = _Store(root, facts)
        units += [(broker, number, unit) for number, unit in enumerate(found)]
    surveyed = dict[str, list[Any]]()
    with described(spark, "Audit: survey queues and index files"):
        for broker, result in run.collect(run.map(run.tasks(units), _survey), "survey"):
            surveyed.setdefault(broker, []).append(result.value)
    for broker, store in run.stores.items():
        run.stores[broker] = store._replace(surveys=Surveys.of(surveyed.get(broker, [])))
    segments_of = [(broker, number, number) for broker, store in run.stores.items() for number in _numbers(store)]
    evidence = run.map(run.tasks(segments_of), _segment).persist()
    try:
        with described(spark, "Audit: check the log"):
            not_read = _end_logs(run, evidence, gaps)
        judged = run.judged(_units(run), evidence.where("kind = 'evidence'")).persist()
        try:
            with described(spark, "Audit: check queues and index files by the log"):
                _judge_leftovers(run, judged, evidence)
        finally:
            judged.unpersist()
    finally:
        evidence.unpersist()
    for broker, store in run.stores.items():
        folder, found_here = open_folder(store.root), run.found[broker]
        check_checkpoint_file(folder, max(store.log.newest_ms.values(), default=None), found_here)
        unclean = store.facts.state.unclean
        check_consumer_offsets(store.facts.offsets, store.surveys.ends, found_here, unclean=unclean)
    return run.found, not_read


def _numbers(store: _Store) -> range:
    return range(len(store.facts.with_data))


def _end_logs(run: _Run, evidence: DataFrame, gaps: Mapping[str, Sequence[Range]]) -> NotRead:
    """Put the logs together, add the findings in them, and return the ranges that hold no readable record."""
    parts = dict[str, list[LogPart]]()
    found = dict[str, list[tuple[int, Findings]]]()
    for row in evidence.where("kind in ('log', 'findings')").toArrow().to_pylist():
        if row["kind"] == "log":
            parts.setdefault(row["broker"], []).append(_load(row["data"]))
        else:
            found.setdefault(row["broker"], []).append((row["number"], _load(row["data"])))
    ranges = list[Range]()
    for broker, store in run.stores.items():
        valid = up_to_torn(parts.get(broker, []))
        last = valid[-1].number if valid else -1
        for _, findings in sorted(
            (each for each in found.get(broker, []) if each[0] <= last), key=lambda each: each[0]
        ):
            run.found[broker].extend(findings)
        log = CheckedLog.of(store.facts, valid, gaps[broker], current_begin(open_folder(store.root), store.facts))
        run.stores[broker] = store._replace(log=log, last=last)
        ranges += [*log.damaged, *(part.torn for part in valid if part.torn is not None)]
    return NotRead(len(ranges), sum(end - begin for begin, end in ranges))


def _units(run: _Run) -> DataFrame:
    rows = []
    for broker, store in run.stores.items():
        known: list[QueueSurvey | IndexFile] = [
            *store.surveys.queues.values(),
            *(file for file, _ in store.surveys.index),
        ]
        rows += [
            {"broker": broker, "unit": unit.path, "number": -1, "kind": "unit", "data": pickle.dumps(unit)}
            for unit in known
        ]
    return run.frame(rows)


def _judge_leftovers(run: _Run, judged: DataFrame, evidence: DataFrame) -> None:
    leads, index = dict[str, list[Any]](), dict[str, dict[str, CheckedIndexFile]]()
    for broker, result in run.collect(judged, "leads", "index"):
        if result.kind == "leads":
            leads.setdefault(broker, []).append(result.value)
        else:
            index.setdefault(broker, {})[result.unit] = result.value
    for broker, store in run.stores.items():
        led_to = np.concatenate([np.empty(0, np.int64), *leads.get(broker, [])])
        run.stores[broker] = store._replace(excuses=Excuses(led_to, index.get(broker, {})))
    is_valid = F.lit(False)
    for broker, store in run.stores.items():
        is_valid |= (F.col("broker") == broker) & (F.col("number") <= store.last)
    missing = evidence.where("kind = 'leftover'").where(is_valid)
    leftovers = judged.where("kind = 'leftover'").unionByName(missing)
    for _ in run.collect(run.map(leftovers, _leftover)):
        pass
