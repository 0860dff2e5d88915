"""State of stores that an audit knows before it reads their tables."""

import struct
from pathlib import Path

from rocketbroker.analytics.jobs.audited_stores import audited_stores
from rocketbroker.codec.storefile.audit_rules import AuditRule
from tests.support import golden_store


def test_an_index_file_that_was_cut_is_a_finding_and_no_error(tmp_path: Path) -> None:
    root = golden_store.unpack("clean", tmp_path)
    assert audited_stores(root)[0].damaged == ()
    path = min((root / "index").iterdir())
    with path.open("r+b") as file:
        file.truncate(10)
    (store,) = audited_stores(root)
    ((rule, why),) = store.damaged
    assert rule is AuditRule.INDEX_HEADER
    assert why.startswith(f"{path}: index header has 10 bytes instead of 40")


def test_slots_that_a_file_does_not_tell_may_be_given(tmp_path: Path) -> None:
    root = golden_store.unpack("clean", tmp_path)
    path = min((root / "index").iterdir())
    begin, end, begin_offset, end_offset, slots, _ = struct.unpack_from(">qqqqii", path.read_bytes())
    header = struct.pack(">qqqqii", begin, end, begin_offset, end_offset + 1, slots, 2)
    path.write_bytes(header + path.read_bytes()[len(header) :])
    (asked,) = audited_stores(root)
    ((rule, why),) = asked.damaged
    assert rule is AuditRule.INDEX_HEADER
    assert "maxHashSlotNum" in why
    (told,) = audited_stores(root, golden_store.MAX_HASH_SLOT_NUM)
    assert told.damaged == ()
