"""Messages, damage and the end of a CommitLog."""

import random
from pathlib import Path

import numpy as np
import pytest

from rocketbroker.app.mqstore.dump import log_rows
from rocketbroker.audit.log_audit import CheckedLog
from rocketbroker.codec.message.message_const import (
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from rocketbroker.codec.message.message_ext import MessageExt
from tests.support.audit_damage import DAMAGE, INT64, QUEUE_OFFSET, victim
from tests.support.audited_store import MESSAGES, bytes_at, check, errors, log_place, patch, warnings
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.stores import LOG_FILE, store_config


def test_halves_of_transactions_rollbacks_and_inner_batches_are_in_no_queue(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    for flag in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, INNER_BATCH_FLAG):
        writer.append(sys_flag=flag)
    assert check(tmp_path).findings == []
    writer.append(sys_flag=TRANSACTION_COMMIT_TYPE)
    assert list(warnings(check(tmp_path))) == ["queue-missing"]


def check_offsets(root: Path) -> list[int]:
    """The physical offsets of all messages."""
    return [row["physicalOffset"] for row, body in log_rows(store_config(root), 0) if body is not None]


def test_damage_across_the_end_of_a_file_is_skipped(copy: Path, queued: list[MessageExt]) -> None:
    (copy / "abort").touch()
    offsets = check_offsets(copy)
    first_of_file = next(each for each in offsets if each >= LOG_FILE)
    for each in (offsets[offsets.index(first_of_file) - 1], first_of_file):
        patch(log_place(copy, each), b"\0", 4)
    patch((copy / "commitlog" / f"{0:020d}", 65_000), bytes(536))
    report = check(copy)
    assert set(errors(report)) == {"record-magic"}
    assert report.messages >= MESSAGES - 4


def test_what_lies_before_the_first_file_of_the_log_is_no_error(copy: Path) -> None:
    (copy / "commitlog" / f"{0:020d}").unlink()
    report = check(copy)
    assert report.findings == []
    assert report.begin == LOG_FILE


def test_a_log_file_that_was_lost_and_recreated_is_a_hole(copy: Path, queued: list[MessageExt]) -> None:
    (copy / "commitlog" / f"{LOG_FILE:020d}").write_bytes(bytes(LOG_FILE))
    assert errors(check(copy)) == {"log-hole": 1}


TAIL = ["a body", "totalSize", "a magic code", "physicalOffset", "a record zeroed"]


@pytest.mark.parametrize("kind", TAIL)
def test_after_an_unclean_stop_damage_that_no_checkpoint_covers_is_a_torn_tail(
    copy: Path, queued: list[MessageExt], kind: str
) -> None:
    (copy / "abort").touch()
    (copy / "checkpoint").unlink()
    DAMAGE[kind][1](copy, queued)
    report = check(copy)
    assert errors(report) == {}
    assert warnings(report)["log-torn-tail"] == 1
    assert report.end == victim(queued).commit_log_offset
    assert warnings(report)["queue-entry-beyond-log"] >= len(queued) - QUEUE_OFFSET


@pytest.mark.parametrize("kind", TAIL)
def test_after_an_unclean_stop_damage_before_the_checkpoint_is_an_error(
    copy: Path, queued: list[MessageExt], kind: str
) -> None:
    (copy / "abort").touch()
    DAMAGE[kind][1](copy, queued)
    report = check(copy)
    assert list(errors(report)) == [DAMAGE[kind][0]]
    assert "log-torn-tail" not in warnings(report)


def test_bytes_left_after_a_truncated_log_are_no_error(copy: Path, queued: list[MessageExt]) -> None:
    """RocketMQ cuts a log without zeroing what was there: half a record, and older ones behind it."""
    end = check(copy).end
    size = victim(queued).store_size
    record = bytearray(bytes_at(log_place(copy, victim(queued).commit_log_offset), size))
    record[28:36] = INT64.pack(end + 50)
    patch(log_place(copy, end), b"left over")
    patch(log_place(copy, end + 50), bytes(record))
    report = check(copy)
    assert (errors(report), list(warnings(report))) == ({}, ["log-torn-tail"])
    assert (report.end, report.messages) == (end, MESSAGES)


def test_the_last_message_cannot_be_taken_for_what_a_cut_left(copy: Path, queued: list[MessageExt]) -> None:
    last = max(check_offsets(copy))
    patch(log_place(copy, last), b"\0", 4)
    assert list(errors(check(copy))) == ["record-magic"]


def log_with(damaged: list[tuple[int, int]]) -> CheckedLog:
    return CheckedLog(0, 0, 0, sorted(damaged), {})


def test_offsets_in_damaged_ranges_are_those_a_plain_loop_finds() -> None:
    """Ranges touch and lie in each other."""
    numbers = random.Random(7)
    for count in (0, 1, 3, 40):
        ranges = [(low := numbers.randrange(500), low + numbers.randrange(60)) for _ in range(count)]
        offsets = np.array([numbers.randrange(-5, 600) for _ in range(500)])
        expected = [any(low <= offset < high for low, high in ranges) for offset in offsets.tolist()]
        assert log_with(ranges).is_damaged(offsets).tolist() == expected


def test_many_ranges_are_not_gone_through_for_each_offset() -> None:
    count = 200_000
    found = log_with([(low, low + 5) for low in range(0, count * 10, 10)]).is_damaged(np.arange(0, count * 10, 7))
    assert found.tolist() == [offset % 10 < 5 for offset in range(0, count * 10, 7)]
