"""Output and exit codes of ``mqstore check``."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocketbroker.app.mqstore.cli import app
from tests.support import golden_store
from tests.support.audited_store import QUEUE, make_audited_store, patch, queue_place


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    await make_audited_store(tmp_path / "store")
    return tmp_path / "store"


def damage(store: Path) -> None:
    patch(queue_place(store, 3), b"\x7f")


def test_a_sound_store_gives_0(store: Path) -> None:
    result = run(store)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{store}: stopped cleanly"
    assert lines[1].startswith("400 messages from 0 to ")
    assert lines[2] == "nothing is wrong"


def test_errors_give_1_with_rule_file_and_position(store: Path) -> None:
    damage(store)
    result = run(store)
    assert result.exit_code == 1
    path = f"consumequeue/{QUEUE[0]}/{QUEUE[1]}/{0:020d}"
    assert f"error queue-entry-beyond-log {path}:60 Topic0/0 queue offset 3: the entry leads to" in result.stdout
    assert "1 errors, 0 warnings; 1 shown" in result.stdout


def test_json_has_all_of_it(store: Path) -> None:
    damage(store)
    found = json.loads(run(store, "--json", "--limit", 0).stdout)
    assert (found["errors"], found["warnings"], found["messages"], found["cleanStop"]) == (1, 0, 400, True)
    assert [each["rule"] for each in found["rules"]] == ["queue-entry-beyond-log"]
    assert found["findings"] == []
    (finding,) = json.loads(run(store, "--json").stdout)["findings"]
    assert (finding["severity"], finding["position"]) == ("error", 60)


def test_warnings_give_0(store: Path) -> None:
    damage(store)
    (store / "abort").touch()
    result = run(store)
    assert result.exit_code == 0
    assert "not stopped cleanly" in result.stdout
    assert "0 errors, 1 warnings" in result.stdout


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_stores_of_apache_rocketmq_give_0(tmp_path: Path, name: str) -> None:
    assert run(golden_store.unpack(name, tmp_path)).exit_code == 0


def test_a_folder_that_is_not_a_store_exits_with_2(tmp_path: Path) -> None:
    for wrong in (tmp_path / "missing", tmp_path, Path(__file__)):
        result = run(wrong)
        assert result.exit_code == 2
        assert result.stderr.startswith("mqstore: ")
        assert len(result.stderr.splitlines()) == 1


def test_the_settings_file_of_the_broker_is_heeded(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "elsewhere")
    (tmp_path / "broker.conf").write_text(
        f"storePathCommitLog={tmp_path / 'elsewhere'}\n"
        "mappedFileSizeCommitLog=65536\nmaxHashSlotNum=50\nmaxIndexNum=200\n"
    )
    assert run(store).exit_code == 2
    assert run(store, "-c", tmp_path / "broker.conf").exit_code == 0
