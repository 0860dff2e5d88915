"""What is read of config/ when a file is damaged, empty or missing; the broker has the same rules."""

import logging
from pathlib import Path

import pytest

from rocketbroker.common.errors import StoreError
from tests.support.table_rows import table_rows

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
