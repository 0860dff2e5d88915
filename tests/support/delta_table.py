"""Tables of Delta Lake, read without Spark by the JSON of their log, and settings by which Spark writes them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from tests.support.java_toolchain import JavaError, jars
from tests.support.job_frames import SMALL_SESSION


def lake_settings(*lakes: str) -> dict[str, str]:
    """Return settings of a session with the jars of lakes, the first of them Delta; skip the test if Maven has none."""
    try:
        files = [str(jar) for lake in lakes for jar in sorted(jars(lake).glob("*.jar"))]
    except JavaError as error:
        pytest.skip(f"needs-maven: the jars of {', '.join(lakes)} cannot be fetched: {error}")
    return SMALL_SESSION | {
        "spark.jars": ",".join(files),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def delta_actions(table: Path) -> Iterator[dict[str, Any]]:
    """Yield the actions of the log in order."""
    for entry in sorted((table / "_delta_log").glob("[0-9]*.json")):
        yield from map(json.loads, entry.read_text().splitlines())


def delta_files(table: Path) -> dict[str, dict[str, str]]:
    """Return the files that the log has added and not removed, with their partition values.

    Files of failed tasks are not in it.
    """
    files: dict[str, dict[str, str]] = {}
    for action in delta_actions(table):
        if "add" in action:
            files[unquote(action["add"]["path"])] = action["add"]["partitionValues"]
        elif "remove" in action:
            del files[unquote(action["remove"]["path"])]
    return files


def delta_rows(table: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the files that the log has."""
    for name in sorted(delta_files(table)):
        read = pq.read_table(table / name, columns=list(columns))
        yield from zip(*(read[column].to_pylist() for column in columns), strict=True)
