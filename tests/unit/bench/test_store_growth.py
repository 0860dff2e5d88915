"""A grown store is one that a broker opens, with all messages in the log and in their queues."""

from collections import Counter
from pathlib import Path

from bench.mixed_store import GrownStore
from rocketbroker.audit.store_audit import audit
from rocketbroker.codec.storefile.audit_rules import Severity
from tests.support.mixed_store import MixedStore
from tests.support.slow_store_reader import slow_rows
from tests.support.stores import store_config

SEGMENT = 1 << 17


def test_each_segment_continues_where_the_last_one_ended(tmp_path: Path):
    MixedStore(tmp_path / "base", 900, mapped_file_size_commit_log=SEGMENT, message_index_enable=False).make()
    assert len(list((tmp_path / "base" / "commitlog").iterdir())) > 1
    grown = GrownStore(tmp_path / "base", SEGMENT)
    grown.write(tmp_path / "grown", 3)
    rows = slow_rows(tmp_path / "grown" / "commitlog")
    assert len(rows) == 3 * grown.messages_each
    first = rows[: grown.messages_each]
    for number in range(1, 3):
        for row, copy in zip(first, rows[number * len(first) :], strict=False):
            assert copy["physical_offset"] == row["physical_offset"] + number * SEGMENT
            assert copy["body"] == row["body"]
            lag = row["store_timestamp"] - row["born_timestamp"]
            assert copy["store_timestamp"] - copy["born_timestamp"] == lag
    stored = [row["store_timestamp"] for row in rows]
    assert stored == sorted(stored)
    counts = Counter((row["topic"], row["queue_id"]) for row in rows)
    for queue, count in counts.items():
        offsets = [row["queue_offset"] for row in rows if (row["topic"], row["queue_id"]) == queue]
        assert offsets == list(range(count))


def test_queues_lead_to_the_messages_of_the_log(tmp_path: Path):
    MixedStore(tmp_path / "base", 900, mapped_file_size_commit_log=SEGMENT, message_index_enable=False).make()
    GrownStore(tmp_path / "base", SEGMENT).write(tmp_path / "grown", 3)
    settings = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 6_000_000}
    report = audit(store_config(tmp_path / "grown", **settings))
    errors = {rule.value: count for (rule, severity), count in report.counts.items() if severity is Severity.ERROR}
    assert errors == {}
