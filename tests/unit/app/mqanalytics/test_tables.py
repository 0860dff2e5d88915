"""Output of `mqanalytics queue-traffic`, and sessions of commands."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqanalytics import tables
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.common.errors import StoreError
from tests.support.commit_log_writer import overwrite
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.store_damage import places


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traffic") / "store"
    MixedStore(root, 300, span_ms=600_000).make()
    return root


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["queue-traffic", *map(str, arguments)])


def test_rows_are_those_of_traffic(made: Path) -> None:
    printed = run(made, "--json", "--interval", 300, "--topic", "orders")
    assert printed.exit_code == 0, printed.stderr
    told = json.loads(printed.stdout)
    assert told | {"rows": []} == {"job": "queue-traffic", "rows": [], "more": False, "notRead": None}
    assert list(told["rows"][0]) == ["broker", "topic", "fromTime", "messages", "bytes"]
    assert sum(row["messages"] for row in told["rows"]) == sum(
        row["topic"] == "orders" for row in slow_rows(made / "commitlog")
    )
    assert {row["fromTime"] % 300_000 for row in told["rows"]} == {0}


def test_the_last_line_says_what_is_known_of_damage(made: Path, tmp_path: Path) -> None:
    printed = run(made, "--limit", 2)
    assert printed.stdout.splitlines()[-1] == "2 rows; and more (--limit); not checked for damage"
    store = shutil.copytree(made, tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    place = list(places(store / "commitlog"))[20]
    overwrite(store / "commitlog" / place.file, place.position + 4, b"????")
    assert run(store).stdout.splitlines()[-1].endswith(f"; 1 range, {place.size} bytes not read")


def test_the_fault_is_one_line(made: Path) -> None:
    printed = run(made, "--interval", 61)
    assert (printed.exit_code, printed.stdout) == (2, "")
    assert printed.stderr == (
        "mqanalytics: --interval 61: traffic from queues is by whole minutes; give a multiple of 60\n"
    )


@pytest.mark.parametrize(("topic", "hint"), [("nope", "\n"), ("order", "; did you mean 'orders'?\n")])
def test_a_topic_that_does_not_exist_is_named(made: Path, topic: str, hint: str) -> None:
    printed = run(made, "--topic", topic, "--topic", "orders")
    assert printed.exit_code == 0
    assert printed.stderr == f"mqanalytics: there is no topic {topic!r} in these stores{hint}"
    alone = run(made / "commitlog", "--topic", topic)
    assert "there is no topic" not in alone.stderr, "a commit log alone does not tell"


def test_a_damaged_table_of_topics_is_no_reason_to_fail(made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text("{")
    assert "there is no topic 'nope'" in run(store, "--topic", "nope").stderr


def test_counting_by_spark_runs_a_jvm_as_small_as_other_jobs_do(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def scope(_what: str, _roots: Any, _wanted: Any = None, settings: Any = None) -> Any:
        given.append(settings)
        raise StoreError("no session")

    monkeypatch.setattr(tables, "job_scope", scope)
    for arguments in (["count", "--engine", "spark"], ["sizes"]):
        assert CliRunner().invoke(app, [*arguments, str(made)]).exit_code == 1
    assert given[0] == given[1] != {}
