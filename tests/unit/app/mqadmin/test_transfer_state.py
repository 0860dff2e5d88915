"""Files of progress: replaced as a whole, or as before."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from rocketbroker.app.mqadmin.transfer_state import check_options, read_state, write_state
from rocketbroker.common.errors import ConfigError


class State(msgspec.Struct):
    rows: int


def test_a_full_disk_leaves_the_last_state_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t.state"
    write_state(path, State(1))

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_state(path, State(2))
    assert read_state(path, State) == State(1)
    assert list(tmp_path.iterdir()) == [path]


def test_other_contents_and_other_options_are_named(tmp_path: Path):
    path = tmp_path / "t.state"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"t\.state is no file of progress: .*; remove it to begin at the start"):
        read_state(path, State)
    with pytest.raises(ConfigError, match=r"t\.state was begun with key None, now it is 'k'; give the same options"):
        check_options({"key": None}, {"key": "k"}, path)
