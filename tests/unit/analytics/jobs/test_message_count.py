"""Counts by topic and queue in this process, and the choice between it and Spark."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.analytics.columns.decode_report import DecodeReport
from rocketbroker.analytics.jobs.message_count import count_locally
from rocketbroker.app.mqanalytics import running, tables
from rocketbroker.app.mqanalytics.cli import app
from tests.support.mixed_store import MixedStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("count") / "store"
    MixedStore(root, 500, 3).make()
    return root


def test_each_message_is_counted_once(store: Path):
    report, seen = DecodeReport(), list[int]()

    counts = count_locally([store], report, seen.append)

    assert sum(each.messages for each in counts) == report.messages == seen[-1] == 500
    assert counts == sorted(counts)
    assert report.ranges == []


def test_a_small_store_is_counted_without_spark(store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)

    said = CliRunner().invoke(app, ["count", str(store), "--json"])

    assert (said.exit_code, json.loads(said.stdout)["messages"]) == (0, 500)


@pytest.mark.parametrize(("limit", "engine"), [(1 << 30, "local"), (1000, "spark")])
def test_the_size_of_the_log_chooses_the_engine(store: Path, limit: int, engine: str, monkeypatch: pytest.MonkeyPatch):
    chosen: list[str] = []
    for name, function in (("local", "_locally"), ("spark", "_by_spark")):

        def counted(*_: object, name: str = name) -> tuple[list[object], None]:
            chosen.append(name)
            return [], None

        monkeypatch.setattr(tables, function, counted)
    monkeypatch.setattr(running, "_MOST_LOCAL_BYTES", limit)

    assert CliRunner().invoke(app, ["count", str(store)]).exit_code == 0
    assert chosen == [engine]


@pytest.mark.parametrize("job", ["audit", "count"])
def test_a_master_is_used_for_small_stores_too(store: Path, monkeypatch: pytest.MonkeyPatch, job: str):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    said = CliRunner().invoke(app, ["--master", "spark://host:7077", job, str(store)])
    assert (said.exit_code, "pyspark is missing" in said.stderr) == (1, True), said.output


def test_a_small_store_is_audited_without_spark(store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)

    said = CliRunner().invoke(app, ["audit", str(store), "--json"])

    assert (said.exit_code, json.loads(said.stdout)["errors"]) == (0, 0)
