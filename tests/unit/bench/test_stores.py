"""A filled store has the messages asked for, and opens as after a clean stop or a kill."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import stores
from bench.harness import BenchError, application
from bench.stores import HOST, Messages, body_of, check_room, count_for, fill
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from tests.support.fakes import FakeClock
from tests.support.stores import make_store, read_queue

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 17, "max_hash_slot_num": 5_000, "max_index_num": 20_000}
MESSAGES = Messages(body_of(100), topics=("TopicA", "TopicB"), queues=3, per_ms=10)
COUNT = 1_000


@pytest.mark.parametrize("clean", [True, False])
async def test_the_store_opens_and_gives_all_messages_and_keys(tmp_path: Path, clean: bool):
    made = await asyncio.to_thread(fill, tmp_path, COUNT, MESSAGES, **SIZES)
    if not clean:
        made.mark_crashed(0.5)
    assert all(int(path.name) < made.end for path in (tmp_path / "commitlog").iterdir())

    store = make_store(tmp_path, FakeClock(made.first_timestamp + 60_000), store_host=HOST, **SIZES)
    await store.start()
    try:
        assert store.lock.was_clean is clean
        assert store.commit_log.max_offset == made.end
        assert made.end >= COUNT * MESSAGES.record_size
        places = [(topic, queue) for topic in MESSAGES.topics for queue in range(MESSAGES.queues)]
        bodies = {message.body for place in places for message in read_queue(store, *place)}
        assert bodies == {MESSAGES.batch(number, 1).bodies[0] for number in range(COUNT)}
        found = await store.queries.query_message("TopicA", "order-000000007", 32, 0, 2**62)
        assert len(found.records) == 1
    finally:
        await store.stop()


def test_the_checkpoint_says_what_is_known(tmp_path: Path):
    made = fill(tmp_path, 100, MESSAGES, **SIZES)

    made.mark_crashed(0.5, index_known=False)

    known = made.first_timestamp + 5 + 3000
    assert decode_checkpoint(made.config.checkpoint_path.read_bytes())[:3] == (known, known, 0)
    assert made.config.abort_path.exists()


@pytest.mark.parametrize("mib", [1, 1024, 1500])
def test_the_log_is_as_long_as_asked_for(mib: int):
    messages = Messages(body_of(1024))
    count = count_for(mib << 20, messages)

    assert 0 <= (mib << 20) - count * messages.record_size < 2 * messages.record_size + 8


def test_a_store_that_has_no_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stores, "room", lambda _: 1 << 20)

    with pytest.raises(BenchError, match="has no room for"):
        check_room(tmp_path, 10_000, MESSAGES)


def test_a_mixed_store_is_kept_and_damaged_where_it_says(tmp_path: Path):
    arguments = [str(tmp_path / "store"), "--messages", "2000", "--damaged", "3"]

    done = CliRunner().invoke(application("analytics_store"), arguments)

    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 5
    assert done.output.splitlines()[-1].startswith("torn at ")
    assert CliRunner().invoke(application("analytics_store"), arguments).exit_code == 2
