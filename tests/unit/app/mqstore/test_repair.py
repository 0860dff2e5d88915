"""``mqstore repair`` says what it would do, does it only when told so, and leaves a store without errors."""

import asyncio
import errno
import os
from collections.abc import Sequence
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocketbroker.app.mqstore import repair
from rocketbroker.app.mqstore.cli import app
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.message.message_batch import BatchParts
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import FoundColumns, find_properties_of_batch
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile.index_file_layout import entry_position
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import StoreError
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.recovery.store_lock import StoreLock
from tests.support import golden_store
from tests.support.audited_store import (
    QUEUE,
    check,
    errors,
    log_place,
    make_audited_store,
    patch,
    put_all,
    queue_place,
)
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, crash_copy, fetch, make_store, message, pulled, read_queue


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["repair", *map(str, arguments)])


def contents(root: Path) -> dict[Path, bytes]:
    """All that is stored: what ``lock`` holds tells how far its holder is, and nothing once it is given back."""
    files = (path for path in root.rglob("*") if path.is_file() and path != root / "lock")
    return {path.relative_to(root): path.read_bytes() for path in files}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def queued(store: Path) -> list[MessageExt]:
    """The messages of QUEUE in ``store``."""
    return await make_audited_store(store)


def damage_queue(store: Path) -> None:
    patch(queue_place(store, 3), b"\x7f")


def damage_index(store: Path) -> None:
    patch((min((store / "index").iterdir()), entry_position(5, 50)), b"\x01")


def with_an_offset_behind_the_end(killed: Path) -> ConsumerOffsetManager:
    """Consumer offsets of a killed store, which the repair has to set back."""
    path = killed / "config" / "consumerOffset.json"
    offsets = ConsumerOffsetManager(path, FakeClock(), lambda table: replace_contents(table.path, table.encode()))
    offsets.commit("G", *QUEUE, 1000)
    offsets.flush()
    return offsets


def test_a_sound_store_is_left_alone(store: Path, queued: list[MessageExt]) -> None:
    before = contents(store)
    for arguments in ((store,), (store, "--yes")):
        result = run(*arguments)
        assert (result.exit_code, "nothing is wrong" in result.stdout) == (0, True)
    assert contents(store) == before


def test_without_yes_nothing_is_changed(store: Path, queued: list[MessageExt]) -> None:
    damage_queue(store)
    before = contents(store)
    result = run(store)
    assert result.exit_code == 3
    assert f"- rename {store / 'consumequeue'} to consumequeue.damaged" in result.stdout
    assert contents(store) == before


@pytest.mark.parametrize(
    ("damages", "aside"),
    [
        ([damage_queue], ["consumequeue"]),
        ([damage_index], ["index"]),
        ([damage_queue, damage_index], ["consumequeue", "index"]),
    ],
)
def test_what_is_derived_is_rebuilt(store: Path, queued: list[MessageExt], damages: list, aside: list) -> None:
    for damage in damages:
        damage(store)
    log_before = {path: path.read_bytes() for path in (store / "commitlog").iterdir()}
    result = run(store, "--yes")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in store.iterdir() if ".damaged" in path.name) == [
        f"{name}.damaged" for name in aside
    ]
    assert check(store).findings == []
    assert {path: path.read_bytes() for path in (store / "commitlog").iterdir() if path in log_before} == log_before
    assert asyncio.run(served(store)) == queued


@pytest.mark.parametrize("known", [True, False])
def test_queues_of_batches_are_rebuilt(tmp_path: Path, known: bool) -> None:
    """Also those that no batch tells of, where the tables know the topic."""
    root = golden_store.unpack("clean", tmp_path)
    if not known:
        (root / "config" / "topics.json").unlink()
    entries = root / "batchconsumequeue" / "StBatchCQ" / "0" / f"{0:020d}"
    before = entries.read_bytes()
    patch((entries, 37), b"\x07")
    result = run(root, "--yes")
    assert result.exit_code == 0, result.output
    assert (root / "batchconsumequeue.damaged").is_dir()
    assert entries.read_bytes() == before


def test_a_second_repair_keeps_what_the_first_set_aside(store: Path, queued: list[MessageExt]) -> None:
    for _ in range(2):
        damage_index(store)
        assert run(store, "--yes").exit_code == 0
    assert {"index.damaged", "index.damaged-2"} <= {path.name for path in store.iterdir()}


def test_a_killed_store_is_recovered_as_a_broker_does_it(tmp_path: Path, store: Path) -> None:
    killed = asyncio.run(kill(store, tmp_path / "killed"))
    assert run(killed).exit_code == 3
    result = run(killed, "--yes")
    assert result.exit_code == 0, result.output
    assert "store opened after an unclean stop" in result.stdout
    assert not (killed / "abort").exists()
    assert check(killed).findings == []
    assert asyncio.run(served(killed))[-1].body == b"not dispatched"


def test_consumer_offsets_go_back_as_a_start_would_set_them(tmp_path: Path, store: Path) -> None:
    killed = asyncio.run(kill(store, tmp_path / "killed"))
    offsets = with_an_offset_behind_the_end(killed)

    result = run(killed, "--yes")

    assert "the offset of group G in topic " + QUEUE[0] in result.stdout
    offsets.load()
    assert offsets.query("G", *QUEUE) == len(asyncio.run(served(killed)))


def test_consumer_offsets_are_read_when_no_broker_can_change_them_any_more(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = asyncio.run(kill(store, tmp_path / "killed"))
    with_an_offset_behind_the_end(killed)
    load, refused = ConsumerOffsetManager.load, list[str]()

    def look(self: ConsumerOffsetManager) -> bool:
        with pytest.raises(StoreError) as caught:
            StoreLock(killed, killed / "abort").acquire()
        refused.append(str(caught.value))
        return load(self)

    monkeypatch.setattr(ConsumerOffsetManager, "load", look)
    assert run(killed, "--yes").exit_code == 0
    assert ["is in use by another broker" in text for text in refused] == [True]


def test_consumer_offsets_that_cannot_be_read_leave_the_store_as_it_is(tmp_path: Path, store: Path) -> None:
    killed = asyncio.run(kill(store, tmp_path / "killed"))
    with_an_offset_behind_the_end(killed)
    path = killed / "config" / "consumerOffset.json"
    path.write_text("{")
    before = contents(killed)

    result = run(killed, "--yes")

    assert result.exit_code == 2
    assert f"{path} is damaged" in result.stderr
    assert contents(killed) == before
    path.unlink()
    assert run(killed, "--yes").exit_code == 0, "the lock was given back"


def test_a_table_that_cannot_be_written_is_named_and_the_next_repair_tries_again(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = asyncio.run(kill(store, tmp_path / "killed"))
    offsets = with_an_offset_behind_the_end(killed)

    def refuse(_path: Path, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(repair, "replace_contents", refuse)
        result = run(killed, "--yes")

    assert result.exit_code == 2
    assert f"mqstore: {offsets.path} cannot be written: No space left on device; repair again" in result.stderr
    assert run(killed, "--yes").exit_code == 0
    offsets.load()
    assert offsets.query("G", *QUEUE) == len(asyncio.run(served(killed)))


def test_a_disk_error_without_a_file_name_is_reported_with_its_reason(
    store: Path, queued: list[MessageExt], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(repair, "run_audit", refuse)
    result = run(store)
    assert result.exit_code == 2
    assert result.stderr == "mqstore: disk error: [Errno 5] Input/output error\n"


def test_a_store_that_a_broker_has_open_is_not_touched(store: Path, queued: list[MessageExt]) -> None:
    damage_queue(store)
    before = contents(store)
    lock = StoreLock(store, store / "abort")
    lock.acquire()
    try:
        result = run(store, "--yes")
    finally:
        lock.release()
    assert result.exit_code == 2
    assert f"mqstore: {store} is in use; stop the broker first" in result.stderr
    assert contents(store) == before


def test_a_damaged_record_stays_and_is_still_an_error(store: Path, queued: list[MessageExt]) -> None:
    damage_queue(store)
    patch(log_place(store, queued[5].commit_log_offset), b"?", 90)
    before = contents(store / "commitlog")
    result = run(store, "--yes")
    assert result.exit_code == 1
    assert list(errors(check(store))) == ["record-crc"]
    after = contents(store / "commitlog")
    assert {name: after[name] for name in before} == before


def test_a_store_that_cannot_be_opened_gives_2(store: Path, queued: list[MessageExt]) -> None:
    os.truncate(max((store / "commitlog").iterdir()), 70_000)
    result = run(store, "--yes")
    assert result.exit_code == 2
    assert result.stderr.startswith("mqstore: ")


async def served(root: Path) -> list[MessageExt]:
    """Return the messages of QUEUE that a broker delivers."""
    store = make_store(root)
    await store.start()
    try:
        return read_queue(store, *QUEUE)
    finally:
        await store.stop()


async def kill(root: Path, into: Path) -> Path:
    """Leave a store like a broker that is killed with a message stored and not dispatched."""
    clock = FakeClock()
    store = make_store(root, clock)
    await store.start()
    put_all(store, clock, 100)
    store.appender.put_message(message(b"not dispatched", "Topic0"))
    killed = crash_copy(root, into)
    await store.stop()
    return killed


async def with_wrong_batches(root: Path, killed: Path | None) -> None:
    """Make a store whose queue entries and index keys of batches have the first message's tags, as older ones may."""
    clock = FakeClock()
    store = make_store(root, clock)
    await store.start()
    with pytest.MonkeyPatch.context() as patched:

        def wrong(raws: Sequence[bytes], length: int | None = None) -> FoundColumns:
            found = find_properties_of_batch(raws, length)
            return found._replace(tags=[found.tags[0]] * len(raws))

        patched.setattr("rocketbroker.store.message_appender.find_properties_of_batch", wrong)
        for number in range(12):
            raws = [
                b"UNIQ_KEY\x01U%03d%d\x02WAIT\x01true\x02TAGS\x01Tag%c\x02" % (number, n, b"AB"[n]) for n in range(2)
            ]
            parts = BatchParts([0, 0], [b"a%d" % number, b"b%d" % number], raws)
            assert store.appender.put_messages(message(topic="Batches"), parts).status is PutMessageStatus.PUT_OK
            clock.advance(0.25)
    if killed is not None:
        crash_copy(root, killed)
    await store.stop()


async def tagged(root: Path, tag: str) -> tuple[list[bytes], int]:
    """Return the bodies of a queue's messages by the tags code of their entries, and the number that a query finds."""
    store = make_store(root)
    await store.start()
    try:
        result = fetch(store, "Batches", 0, 0, 1000, matches=partial(eq, tags_code(tag)))
        found = [each.body for each in decode_messages(pulled(result))]
        asked = await store.queries.query_message("Batches", tag, 1000, 0, ALWAYS, "T")
        return found, len(asked.records)
    finally:
        await store.stop()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_entries_and_keys_with_the_tags_of_another_message_are_mended(tmp_path: Path, store: Path, clean: bool) -> None:
    root = store if clean else tmp_path / "killed"
    asyncio.run(with_wrong_batches(store, None if clean else root))
    before = errors(check(root))
    assert not clean or before == {"queue-entry-mismatch": 12, "index-entry-mismatch": 12}

    result = run(root, "--yes")

    assert result.exit_code == 0, result.output
    assert check(root).findings == []
    for tag, letter in (("TagA", b"a"), ("TagB", b"b")):
        assert asyncio.run(tagged(root, tag)) == ([b"%b%d" % (letter, number) for number in range(12)], 12)


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_wrong_body_is_not_promised_to_be_mended(store: Path, queued: list[MessageExt], yes: tuple[str, ...]) -> None:
    patch(log_place(store, queued[5].commit_log_offset), b"?", 90)
    before = contents(store)

    result = run(store, *yes)

    assert result.exit_code == 1
    assert "Repair cannot fix record-crc: only the CommitLog had these messages." in result.stdout
    assert "There are no other errors; nothing was changed." in result.stdout
    assert contents(store) == before
