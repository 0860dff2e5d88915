"""Queues of batches against the log."""

from pathlib import Path

import pytest

from rocketbroker.audit.store_audit import AuditReport, audit
from rocketbroker.codec.storefile.audit_rules import Severity
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_CQ_STORE_UNIT_SIZE
from tests.support.stores import inner_batch, make_store, message, store_config

UNIT = BATCH_CQ_STORE_UNIT_SIZE


def check(root: Path) -> AuditReport:
    return audit(store_config(root))


def rules(report: AuditReport) -> set[str]:
    return {rule.value for rule, severity in report.counts if severity is Severity.ERROR}


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """Records of 3, 1, 2 and 4 messages, in a store that was stopped."""
    store = make_store(tmp_path / "store", batch_topics=["Batches"])
    await store.start()
    for count in (3, 1, 2, 4):
        bodies = [b"body"] * count
        if count == 1:
            store.appender.put_message(message(b"body", "Batches"))
        else:
            store.appender.put_inner_batch(inner_batch(*bodies), count)
    store.appender.dispatch()
    await store.stop()
    return tmp_path / "store"


def file_of(root: Path) -> Path:
    return root / "batchconsumequeue" / "Batches" / "0" / f"{0:020d}"


def patch(root: Path, number: int, at: int, data: bytes) -> None:
    with file_of(root).open("r+b") as file:
        file.seek(number * UNIT + at)
        file.write(data)


def test_nothing_is_wrong_with_what_was_stored(root: Path):
    report = check(root)
    assert (report.findings, report.messages, report.queues) == ([], 4, 1)


@pytest.mark.parametrize(
    ("at", "data", "expected"),
    [
        (0, (50).to_bytes(8, "big"), {"queue-entry-unreadable", "message-not-queued"}),
        (0, (1 << 40).to_bytes(8, "big"), {"queue-entry-beyond-log", "message-not-queued"}),
        (0, bytes(8), {"message-not-queued"}),  # leads to the first record, which has its entry
        (8, b"\x7f\0\0\1", {"queue-entry-mismatch"}),
        (12, bytes(7) + b"\1", {"queue-entry-mismatch"}),
        (20, bytes(8), {"queue-entry-mismatch"}),
        (28, (3).to_bytes(8, "big"), {"queue-entry-mismatch", "queue-offset-order"}),
        (36, b"\0\1", {"queue-entry-mismatch"}),
        (36, b"\0\0", {"queue-entry-mismatch", "queue-offset-order"}),
    ],
)
def test_an_entry_that_differs_from_its_record_is_named(root: Path, at: int, data: bytes, expected: set[str]):
    patch(root, 2, at, data)
    report = check(root)
    assert rules(report) >= expected
    assert all(finding.path.endswith(f"batchconsumequeue/Batches/0/{0:020d}") for finding in report.findings)


def test_records_without_an_entry_are_named(root: Path):
    patch(root, 3, 0, bytes(UNIT))
    report = check(root)
    assert rules(report) == {"message-not-queued"}
    assert report.findings[0].queue_offset == 6


def test_consumer_offsets_are_compared_with_the_end_in_messages(root: Path):
    table = root / "config" / "consumerOffset.json"
    for offset, found in ((10, set()), (11, {"consumer-offset-beyond-queue"})):
        table.write_text(f'{{"offsetTable":{{"Batches@group":{{0:{offset}}}}}}}')
        assert rules(check(root)) == found


def test_after_a_clean_stop_what_the_files_lack_is_mended_by_the_next_start(root: Path):
    file_of(root).write_bytes(bytes(file_of(root).stat().st_size))
    assert "message-not-queued" in rules(check(root))
