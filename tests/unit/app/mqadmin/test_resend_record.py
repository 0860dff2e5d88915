"""Record of resendDlq: the identity of letters, one writer at a time, and files of other kinds."""

from pathlib import Path

import pytest

from rocketbroker.app.mqadmin.resend_record import LetterId, Record, RecordLine, record_path
from rocketbroker.common.errors import ConfigError, StoreError

LETTER = LetterId("7F0000010000", "unique", 5)


def line(state: str, letter: LetterId = LETTER) -> RecordLine:
    return RecordLine(state, letter.dlq_msg_id, 1, letter.uniq_key, letter.stored)


def test_the_last_line_of_a_letter_counts(tmp_path: Path):
    path = tmp_path / "folder" / "record.jsonl"
    record = Record(path, writes=True)
    record.add(line("sending"))
    record.add(line("sent"))
    record.close()
    with path.open("ab") as file:
        file.write(b'{"state": "se')  # cut off by a kill
    again = Record(path, writes=True)
    assert again.state_of(LETTER) == "sent"
    again.add(line("recalled"))
    again.close()
    assert Record(path, writes=False).state_of(LETTER) == "recalled"


def test_a_letter_with_the_id_of_an_earlier_one_is_another_letter(tmp_path: Path):
    record = Record(tmp_path / "record.jsonl", writes=True)
    record.add(line("sent"))
    assert record.state_of(LETTER._replace(uniq_key="other")) == ""
    assert record.state_of(LETTER._replace(stored=6)) == ""
    record.add(line("sending", LETTER._replace(stored=6)))
    assert record.state_of(LETTER) == "sent"
    record.close()


def test_a_second_run_is_refused_while_the_first_one_writes(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    first = Record(path, writes=True)
    first.add(line("sending"))
    with pytest.raises(ConfigError, match="in use by another run"):
        Record(path, writes=True)
    assert Record(path, writes=False).state_of(LETTER) == "sending", "a look is possible"
    first.close()
    Record(path, writes=True).close()


def test_a_look_makes_no_file(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    record = Record(path, writes=False)
    assert not path.exists()
    with pytest.raises(StoreError, match="read only"):
        record.add(line("sent"))


def test_other_files_are_named_with_the_line(tmp_path: Path):
    path = tmp_path / "record.jsonl"
    path.write_text('{"state": "sent", "dlqMsgId": "A", "time": 1}\nno record\n')
    for writes in (False, True):
        with pytest.raises(ConfigError, match="in line 2"):
            Record(path, writes=writes)


def test_a_full_disk_is_an_error_with_the_name_of_the_file(tmp_path: Path):
    record = Record(tmp_path / "record.jsonl", writes=True)
    own = record._file
    record._file = Path("/dev/full").open("ab")  # noqa: SIM115 - the record closes it
    with pytest.raises(StoreError, match=r"record\.jsonl: No space left"):
        record.add(line("sending"))
    record.close()
    assert own is not None
    own.close()


def test_the_file_is_the_same_in_every_working_directory(tmp_path: Path):
    found = record_path("a/b", "G", {"XDG_STATE_HOME": str(tmp_path)})
    assert found == tmp_path / "rocketbroker" / "resendDlq" / "a%2Fb" / "G.jsonl"
    assert record_path("c", "G", {"XDG_STATE_HOME": "relative"}).is_absolute()
