"""Config files as RocketMQ wrote them."""

import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_tables import dumps_config, is_table, load_table, loads_config, rule_of_damage
from rocketbroker.common.errors import CodecError
from tests.support import golden_store

ONE_LINE = ("timermetrics", "transactionMetrics")
CONFIGS = [
    (name, path)
    for name in golden_store.NAMES
    for path in golden_store.files(name)
    if path.startswith(("config/", "compaction/")) and "timercheck" not in path and not path.endswith("/")
]


@pytest.mark.parametrize(("name", "path"), CONFIGS)
def test_golden_configs_come_back_byte_for_byte(name: str, path: str) -> None:
    data = golden_store.files(name)[path]
    value = loads_config(memoryview(data))
    again = fastjson.dumps(value) if any(part in path for part in ONE_LINE) else dumps_config(value)
    assert again == data


@pytest.mark.parametrize(("name", "path"), CONFIGS)
def test_a_golden_config_cut_at_any_byte_is_rejected(name: str, path: str) -> None:
    data = golden_store.files(name)[path]
    for length in range(0, len(data), max(1, len(data) // 400)):
        with pytest.raises(CodecError):
            loads_config(data[:length])


def test_integer_keys_come_as_they_are_written() -> None:
    offsets = loads_config(golden_store.files("clean")["config/delayOffset.json"])["offsetTable"]
    assert offsets == {1: 7, 3: 2}
    assert loads_config(b'{"offsetTable":{"1":7}}')["offsetTable"] == {"1": 7}


@pytest.mark.parametrize("data", [b"[]", b"1", b"null", b'"text"'])
def test_a_value_that_is_not_an_object_is_rejected(data: bytes) -> None:
    with pytest.raises(CodecError, match="must hold one JSON object"):
        loads_config(data)


def test_a_table_is_read_of_a_file_and_of_its_backup() -> None:
    for name in ("topics.json", "topics.json.bak"):
        assert load_table(name, b'{"topicConfigTable":{}}') == {"topicConfigTable": {}}


@pytest.mark.parametrize(
    ("name", "lacks"), [("consumerOffset.json", "offsetTable"), ("timerProgress.json.bak", "slotEntries")]
)
@pytest.mark.parametrize("data", [b"{}", b'{"offsetTable":7,"slotEntries":[]}'])
def test_a_file_without_its_table_is_damaged(name: str, lacks: str, data: bytes) -> None:
    with pytest.raises(CodecError, match=f"it has no table {lacks}"):
        load_table(name, data)


def test_of_other_files_any_object_is_taken() -> None:
    assert load_table("deletedTopics.json", b"{}") == {}
    for data in (b"", b"[]", b"{"):
        with pytest.raises(CodecError):
            load_table("deletedTopics.json", data)


def test_what_counts_as_a_table_and_which_rule_a_damaged_one_breaks() -> None:
    names = ("topics.json", "topics.json.bak", "topics.json.tmp", "notes", ".bak")
    assert [is_table(name) for name in names] == [True, True, False, False, False]
    assert rule_of_damage("topics.json") is AuditRule.CONFIG_DAMAGED
    assert rule_of_damage("topics.json.bak") is AuditRule.CONFIG_BACKUP_DAMAGED
