"""Tables of config/ when a file is damaged, empty or missing; the broker has the same rules."""

import json
import logging
import re
from pathlib import Path

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.table_rows import named, table_rows

TABLES = {
    "topics": ("topics.json", b'{"topicConfigTable":{"T":{"topicName":"T","perm":6}}}', "topicConfigTable"),
    "subscription_groups": (
        "subscriptionGroup.json",
        b'{"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
        "subscriptionGroupTable",
    ),
    "consumer_offsets": ("consumerOffset.json", b'{"offsetTable":{"T@G":{0:5}}}', "offsetTable"),
}


@pytest.fixture(params=TABLES)
def table(request, tmp_path: Path):
    """Name of a table, its file, and what a whole file holds."""
    name, whole, field = TABLES[request.param]
    (tmp_path / "config").mkdir()
    return request.param, tmp_path / "config" / name, whole, field


def test_a_whole_file_is_read_without_a_log_line(table, tmp_path, caplog):
    name, path, whole, _ = table
    path.write_bytes(whole)
    path.with_name(path.name + ".bak").write_bytes(b"")
    assert len(table_rows(tmp_path, name)) == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (None, "is missing"),
        (b'{"topicConfig', "is damaged: JSON at character"),
        (b"{}", "is damaged: it has no table"),
        (b"[]", "is damaged: a config file must hold one JSON object"),
    ],
)
def test_the_backup_is_read_in_its_place_and_that_is_reported(table, tmp_path, caplog, data, said):
    name, path, whole, _ = table
    if data is not None:
        path.write_bytes(data)
    path.with_name(path.name + ".bak").write_bytes(whole)
    with caplog.at_level(logging.WARNING):
        assert len(table_rows(tmp_path, name)) == 1
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path} {said}")
    assert record.getMessage().endswith(f"; its backup {path.name}.bak is read instead")


@pytest.mark.parametrize("backup", [None, b"", b"{", b'{"offsetTable":[]}'])
def test_without_a_backup_damage_is_an_error_that_names_both(table, tmp_path, backup):
    name, path, _, field = table
    path.write_bytes(b"{}")
    if backup is not None:
        path.with_name(path.name + ".bak").write_bytes(backup)
    with pytest.raises(StoreError) as raised:
        table_rows(tmp_path, name)
    text = str(raised.value)
    assert f"{path} is damaged: it has no table {field}; " in text
    assert f"{path.name}.bak" in text.partition("; ")[2]
    assert text.endswith("repair the file, or let the broker write it again")


def test_a_damaged_backup_of_a_file_that_is_gone_is_an_error(table, tmp_path):
    name, path, _, _ = table
    path.with_name(path.name + ".bak").write_bytes(b"{")
    with pytest.raises(StoreError, match=f"{path} is missing; {path}.bak is damaged"):
        table_rows(tmp_path, name)


def test_neither_gives_no_rows_and_is_reported(table, tmp_path, caplog):
    name, path, _, _ = table
    with caplog.at_level(logging.WARNING):
        assert table_rows(tmp_path, name) == []
    assert caplog.messages == [f"{path} and its backup are missing; its table is empty"]


def test_no_memory_is_taken_for_a_file_larger_than_any_broker_writes(table, tmp_path):
    name, path, _, _ = table
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreError, match=f"{path} is damaged: "):
        table_rows(tmp_path, name)


def test_each_recorded_topic_is_a_row(recorded):
    text = (recorded / "config" / "topics.json").read_text()
    table = json.loads(text)["topicConfigTable"]
    rows = table_rows(named(recorded), "topics")
    assert [row["topic"] for row in rows] == sorted(table)
    for row in rows:
        topic = table[row["topic"]]
        assert row == {
            "broker": "broker-a",
            "topic": topic["topicName"],
            "read_queue_nums": topic["readQueueNums"],
            "write_queue_nums": topic["writeQueueNums"],
            "perm": topic["perm"],
            "topic_filter_type": topic["topicFilterType"],
            "topic_sys_flag": topic["topicSysFlag"],
            "order": topic["order"],
            "attributes": topic["attributes"],
        }
    assert [row["attributes"] for row in rows if row["topic"] == "StBatchCQ"] == [{"queue.type": "BatchCQ"}]
    assert len(re.findall('"topicName"', text)) == len(rows)


def test_topics_are_chosen_by_name(recorded):
    rows = table_rows(named(recorded), "topics", Selection(topics={"StFill", "none"}))
    assert [row["topic"] for row in rows] == ["StFill"]


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


def test_each_recorded_group_is_a_row(clean):
    table = json.loads((clean / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    rows = table_rows(named(clean), "subscription_groups")
    assert [row["group_name"] for row in rows] == sorted(table)
    for row in rows:
        group = table[row["group_name"]]
        assert (row.pop("broker"), row.pop("retry_policy_type")) == ("broker-a", group["groupRetryPolicy"]["type"])
        assert row == {name: group[camel(name)] for name in row}


def test_groups_are_chosen_by_broker_only(clean):
    assert table_rows(named(clean), "subscription_groups", Selection(brokers={"broker-b"})) == []
    with pytest.raises(
        ConfigError, match="table subscription_groups does not support selection by topic, only by broker"
    ):
        table_rows(named(clean), "subscription_groups", Selection(topics={"T"}))


def slow_offsets(root: Path) -> list[dict]:
    """The offsets by a regular expression over the file's text."""
    text = (root / "config" / "consumerOffset.json").read_text()
    table = re.search(r'"offsetTable":\{(.*?)\n\t\}', text, re.DOTALL)
    assert table
    return [
        {
            "broker": "broker-a",
            "group_name": group,
            "topic": topic,
            "queue_id": int(queue),
            "consumer_offset": int(offset),
            "pull_offset": None,
        }
        for topic, group, queues in re.findall(r'"([^"@]+)@([^"@]+)":\{(.*?)\}', table[1], re.DOTALL)
        for queue, offset in re.findall(r"(\d+):(\d+)", queues)
    ]


def place(row):
    return f"{row['topic']}@{row['group_name']}", row["queue_id"]


def test_each_recorded_offset_is_a_row(clean):
    expected = slow_offsets(clean)
    assert table_rows(named(clean), "consumer_offsets") == sorted(expected, key=place)
    assert len(expected) > 8


def test_offsets_are_chosen_by_topic_and_queue(clean):
    found = table_rows(named(clean), "consumer_offsets", Selection(topics={"StPlain"}, queue_ids={0, 2}))
    wanted = [row for row in slow_offsets(clean) if row["topic"] == "StPlain" and row["queue_id"] in {0, 2}]
    assert found == sorted(wanted, key=place)
    assert wanted


def test_offsets_of_pulls_and_strange_names_are_rows(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"T@G":{0:5,1:6},"alone":{"3":7}},"pullOffsetTable":{"T@G":{1:9,2:8}}}'
    )
    rows = table_rows(tmp_path, "consumer_offsets")
    assert [tuple(row.values())[1:] for row in rows] == [
        ("G", "T", 0, 5, None),
        ("G", "T", 1, 6, 9),
        ("G", "T", 2, None, 8),
        (None, "alone", 3, 7, None),
    ]
