import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.store.flush.flush_consume_queue_service import IndexSync
from rocketbroker.store.flush.store_checkpoint import StoreCheckpoint
from rocketbroker.store.index.index_service import IndexService
from rocketbroker.store.queue.consume_queue import ConsumeQueue
from tests.support.stores import ALWAYS

NOW = 1_795_255_162_876


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexService]:
    made = IndexService(tmp_path / "index", 5, 8, lambda: "20261121095923270")
    yield made
    made.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> StoreCheckpoint:
    return StoreCheckpoint(tmp_path / "checkpoint")


def add(index: IndexService, tmp_path: Path, offset: int, stored: int) -> None:
    queue = ConsumeQueue("T", 0, tmp_path / "cq", 200)
    index.add([(queue, 0, offset, 0, 0, stored, (None, b"U%d" % offset, None, False))])


def test_the_checkpoint_takes_what_was_entered_before(index: IndexService, checkpoint: StoreCheckpoint, tmp_path: Path):
    sync = IndexSync(index, checkpoint, lambda: ALWAYS)
    add(index, tmp_path, 0, NOW)
    index.flush()
    add(index, tmp_path, 1, NOW + 1)

    sync.sync()

    assert checkpoint.layout.index_msg_timestamp == NOW


def test_it_syncs_once_in_its_interval(
    index: IndexService, checkpoint: StoreCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sync = IndexSync(index, checkpoint, lambda: ALWAYS, 10.0)
    for number, at in enumerate([100.0, 109.0, 110.0]):
        add(index, tmp_path, number, NOW + number)
        index.flush()
        now[0] = at
        sync.sync_if_due()
        assert checkpoint.layout.index_msg_timestamp == NOW + [0, 0, 2][number]


def test_after_a_failure_the_checkpoint_stays(
    index: IndexService, checkpoint: StoreCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    sync = IndexSync(index, checkpoint, lambda: ALWAYS)
    add(index, tmp_path, 0, NOW)
    index.flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refuse)
        sync.sync()
    assert sync.error == "the index could not be synced: Input/output error"

    sync.sync()

    assert checkpoint.layout.index_msg_timestamp == 0


def test_the_checkpoint_stays_back_with_a_clock_that_was_set_back(
    index: IndexService, checkpoint: StoreCheckpoint, tmp_path: Path
):
    add(index, tmp_path, 0, NOW)
    index.flush()
    add(index, tmp_path, 1, NOW - 60_000)
    sync = IndexSync(index, checkpoint, lambda: NOW - 60_000)

    sync.sync()

    assert checkpoint.layout.index_msg_timestamp == NOW - 60_000
