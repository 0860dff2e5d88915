"""Files of ``config/`` that hold their table, and those that do not."""

import pytest

from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_tables import is_table, load_table, rule_of_damage
from rocketbroker.common.errors import CodecError


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
