"""The store that is made has the size asked for, and each start of the broker is checked."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import starts as starts_module
from bench.harness import BenchError, application
from bench.starts import Options, body_of, generator_of, starts
from bench.store_generator import StoreGenerator, with_number
from rocketbroker.codec.message.message_decoder import decode_messages

linux = pytest.mark.skipif(sys.platform != "linux", reason="servers are measured on Linux")


@pytest.mark.parametrize("mib", [1, 1024, 1500])
def test_the_log_is_as_long_as_asked_for(tmp_path: Path, mib: int):
    made = generator_of(tmp_path, mib << 20, 1024)

    end = made.offset_of(made.count - 1) + made.template.size
    assert 0 <= (mib << 20) - end < made.template.size + 8


@pytest.mark.parametrize("size", [9, 100, 1024])
def test_bodies_have_the_size_asked_for(tmp_path: Path, size: int):
    template = generator_of(tmp_path, 1 << 20, size).template

    (message,) = decode_messages(template.records(np.array([123]), np.array([0])).tobytes())

    assert len(message.body) == size
    assert message.body == with_number(body_of(size), 123)


@linux
def test_the_command_tells_each_start_and_leaves_nothing(tmp_path: Path):
    done = CliRunner().invoke(application("recovery"), ["--mib", "1", "--rounds", "1", "--dir", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert "store opened after an unclean stop" in done.output
    assert done.output.splitlines()[-1].startswith("start after kill, median of 1: ")
    assert list(tmp_path.iterdir()) == []


@linux
def test_a_log_that_ends_too_early_is_an_error(tmp_path: Path):
    made = generator_of(tmp_path / "store", 1 << 20, 4096)
    made.write()
    claimed = StoreGenerator(made.config, made.messages, made.count + 1)

    with pytest.raises(BenchError, match=r"the log ends at \d+ after recovery instead of \d+"):
        list(starts(claimed, tmp_path, Options(1, 0.5, index_known=True, cold=True)))


def test_a_store_that_has_no_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(starts_module, "room", lambda folder: 1 << 20)

    done = CliRunner().invoke(application("recovery"), ["--mib", "64", "--dir", str(tmp_path)])

    assert done.exit_code == 1
    assert "has no room for" in done.output
