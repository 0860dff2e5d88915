"""``mqstore truncate`` drops the end of a log only when told so, and leaves a store without errors."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocketbroker.app.mqstore.cli import app
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.config_manager import encode_file
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.storefile.config_tables import decode_table
from rocketbroker.codec.storefile.timer_slots import TimerProgressFile
from tests.support.fakes import FakeClock
from tests.support.replicas import fill, log_bytes
from tests.support.stores import make_store


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def filled(tmp_path: Path) -> tuple[bytes, int]:
    """Return the log of a store, and where its last four messages begin."""
    return asyncio.run(_fill(tmp_path))


async def _fill(tmp_path: Path) -> tuple[bytes, int]:
    store = make_store(tmp_path / "s")
    await store.start()
    fill(store, "a", 5)
    cut = store.commit_log.max_offset
    fill(store, "b", 4)
    log = log_bytes(store)
    await store.stop()
    offsets = ConsumerOffsetManager(tmp_path / "s" / "config" / "consumerOffset.json", FakeClock())
    offsets.commit("G", "Topic", 0, store.queues.max_offset_in_queue("Topic", 0) + 3)
    offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 3)
    offsets.path.write_bytes(offsets.encode())
    (offsets.path.parent / "delayOffset.json").write_text('{"offsetTable":{1:3}}')
    progress = TimerProgressFile(5, {600_000: 2}, [(700_000, 4)], 500, 86_400_000)
    (offsets.path.parent / "timerProgress.json").write_bytes(encode_file(progress))
    return log, cut


def test_nothing_is_dropped_without_yes(tmp_path: Path, filled: tuple[bytes, int]):
    before = (tmp_path / "s" / "commitlog" / "00000000000000000000").read_bytes()

    result = run("truncate", tmp_path / "s", filled[1])

    assert result.exit_code == 3
    assert f"would open {tmp_path / 's'} as a broker does, drop all messages from {filled[1]} of" in result.output
    assert "Nothing was changed" in result.output
    assert (tmp_path / "s" / "commitlog" / "00000000000000000000").read_bytes() == before


def test_the_messages_from_an_offset_on_are_dropped(tmp_path: Path, filled: tuple[bytes, int]):
    log, cut = filled

    result = run("truncate", tmp_path / "s", cut, "--yes")

    assert result.exit_code == 0, result.output
    assert f"dropped {len(log) - cut:,} bytes; the CommitLog ends at {cut}" in result.output
    assert "G" in result.output
    assert run("check", tmp_path / "s").exit_code == 0
    assert asyncio.run(_log(tmp_path)) == log[:cut]


def test_progress_that_may_count_dropped_messages_begins_again(tmp_path: Path, filled: tuple[bytes, int]):
    assert run("truncate", tmp_path / "s", filled[1], "--yes").exit_code == 0

    folder = tmp_path / "s" / "config"
    offsets = ConsumerOffsetManager(folder / "consumerOffset.json", FakeClock())
    offsets.load()
    assert offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == -1
    assert offsets.query("G", "Topic", 0) > 0
    delays = (folder / "delayOffset.json").read_bytes()
    assert decode_table("delayOffset.json", delays, DelayOffsetSerializeWrapper).offset_table == {}
    timer = (folder / "timerProgress.json").read_bytes()
    expected = TimerProgressFile(0, {}, [], 500, 86_400_000)
    assert decode_table("timerProgress.json", timer, TimerProgressFile) == expected


async def _log(tmp_path: Path) -> bytes:
    store = make_store(tmp_path / "s")
    await store.start()
    try:
        return log_bytes(store)
    finally:
        await store.stop()


def test_an_offset_amid_a_record_is_rejected(tmp_path: Path, filled: tuple[bytes, int]):
    result = run("truncate", tmp_path / "s", filled[1] + 1, "--yes")

    assert result.exit_code == 2
    assert "no record begins there" in result.output
    assert run("check", tmp_path / "s").exit_code == 0
