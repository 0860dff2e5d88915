"""Output of ``mqstore dump`` for recorded stores equals what their recorder knew."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rocketbroker.app.mqstore.cli import app
from tests.support import golden_store
from tests.support.audited_store import patch

MANIFEST = golden_store.manifest("clean")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return golden_store.unpack("clean", tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, arguments)])


def rows(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "--json", "--limit", 0)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_log_has_all_records_with_all_their_fields(store: Path) -> None:
    same = (
        "size",
        "topic",
        "queueId",
        "queueOffset",
        "flag",
        "sysFlag",
        "reconsumeTimes",
        "bornTimestamp",
        "properties",
    )
    found = rows("log", store)
    expected = MANIFEST["messages"]
    assert [each["physicalOffset"] for each in found] == [each["phyOffset"] for each in expected]
    assert [[each[name] for name in same] for each in found] == [[each[name] for name in same] for each in expected]
    assert [each["msgId"] for each in found] == [each["offsetMsgId"] for each in expected]
    assert {each["bodyCRC"] for each in found} == {"right"}


def test_the_log_can_be_shown_in_part(store: Path) -> None:
    third = MANIFEST["messages"][2]
    assert rows("log", store, "--from", third["phyOffset"] - 1)[0]["queueOffset"] == third["queueOffset"]
    topics = {(each["topic"], each["queueId"]) for each in rows("log", store, "-t", "StPlain", "-q", 1)}
    assert topics == {("StPlain", 1)}
    assert len(run("log", store, "--limit", 4).stdout.splitlines()) == 4


def test_damage_in_the_log_is_shown_and_passed(store: Path) -> None:
    first, second, third = MANIFEST["messages"][:3]
    log = store / "commitlog" / f"{0:020d}"
    patch((log, second["phyOffset"]), b"\0", 4)
    patch((log, first["phyOffset"]), b"\0", 90)
    found = rows("log", store)
    assert found[0]["bodyCRC"] == "wrong"
    assert found[1] == {"physicalOffset": second["phyOffset"], "damagedBytes": second["size"]}
    assert found[2]["physicalOffset"] == third["phyOffset"]


def test_bodies_are_shown_whole_when_asked_for(store: Path) -> None:
    assert "bodyPreview=" in run("log", store, "--limit", 1).stdout
    assert ' body="plain body"' in run("log", store, "--limit", 1, "--body").stdout
    assert rows("log", store, "--body")[0]["body"] == "cGxhaW4gYm9keQ=="


def test_a_queue_has_the_entries_of_its_messages(store: Path) -> None:
    expected = [
        [each["queueOffset"], each["phyOffset"], each["size"], each["cqTagCode"]]
        for each in MANIFEST["messages"]
        if (each["topic"], each["queueId"]) == ("StFill", 0)
    ]
    found = rows("queue", store, "-t", "StFill", "-q", 0)
    assert [list(each.values()) for each in found] == expected
    assert len(found) > 60
    assert rows("queue", store, "-t", "StFill", "--from", 100) == found[100:]
    assert {each["topic"] for each in rows("queue", store)} >= {"StFill", "SCHEDULE_TOPIC_XXXX"}


def test_a_queue_of_batches_has_a_row_for_each_record(store: Path) -> None:
    (entry,) = MANIFEST["batch_consumequeues"]["StBatchCQ/0"]["entries"]
    expected = {
        "queueOffset": entry["msgBaseOffset"],
        "messages": entry["batchSize"],
        "physicalOffset": entry["phyOffset"],
        "size": entry["size"],
        "tagsCode": entry["tagCode"],
        "storeTimestamp": entry["storeTime"],
    }
    assert rows("queue", store, "-t", "StBatchCQ") == rows("queue", store, "-t", "StBatchCQ", "--from", 2) == [expected]
    assert rows("queue", store, "-t", "StBatchCQ", "--from", 3) == []
    (listed,) = [each for each in rows("queue", store) if each["topic"] == "StBatchCQ"]
    assert (listed["queueId"], listed["fileSize"], listed["firstQueueOffset"], listed["batches"]) == (0, 4600, 0, 1)


def test_index_files_show_header_slots_and_entries(store: Path) -> None:
    headers = rows("index", store)
    assert [each["file"] for each in headers] == sorted(path.name for path in (store / "index").iterdir())
    assert {(each["maxHashSlotNum"], each["maxIndexNum"]) for each in headers} == {(50, 200)}
    entries = rows("index", store, "--part", "entries")
    assert len(entries) == sum(each["indexCount"] - 1 for each in headers)
    assert len(rows("index", store, "--part", "slots")) == sum(each["hashSlotCount"] for each in headers)
    one = headers[1]["file"]
    assert {each["file"] for each in rows("index", store, "--part", "entries", "--file", one)} == {one}


@pytest.mark.parametrize("option", ["-k", "--tag"])
def test_a_key_is_followed_to_its_message(store: Path, option: str) -> None:
    message = next(each for each in MANIFEST["messages"] if each["keys"] and each["tags"])
    text = message["keys"].split()[0] if option == "-k" else message["tags"]
    found = [each for each in rows("index", store, "-t", message["topic"], option, text) if each["isOfKey"]]
    assert message["phyOffset"] in [each["phyOffset"] for each in found]


def test_checkpoint_and_tables(store: Path) -> None:
    result = run("checkpoint", store, "--json")
    assert json.loads(result.stdout)["physicMsgTimestamp"] == MANIFEST["checkpoint"]["physicMsgTimestamp"]
    found = json.loads(run("config", store, "--file", "delayOffset.json", "--json").stdout)
    assert found["file"] == "delayOffset.json"
    assert found["table"]["offsetTable"]
    assert "topics.json:\n{" in run("config", store).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "-t", "NoSuch"),
        ("index", "--file", "20260101000000000"),
        ("config", "--file", "nothing.json"),
        ("index", "-k", "without a topic"),
    ],
)
def test_what_is_not_there_gives_2(store: Path, arguments: tuple[str, ...]) -> None:
    result = run(arguments[0], store, *arguments[1:])
    assert result.exit_code == 2
    assert result.stderr


def test_a_damaged_table_and_a_short_checkpoint_are_named(store: Path) -> None:
    (store / "config" / "topics.json").write_text("{")
    (store / "checkpoint").write_bytes(b"")
    for arguments, name in ((("config", store), "topics.json"), (("checkpoint", store), "checkpoint")):
        result = run(*arguments)
        assert result.exit_code == 2
        assert name in result.stderr
