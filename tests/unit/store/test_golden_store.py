"""Stores that Apache RocketMQ 5.5.0 wrote, opened by ours."""

import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages, decode_record
from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support import golden_store
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, V4_HOST, fetch, make_store, pulled, read_queue

BATCH_TOPICS = {"StBatchCQ"}


@pytest.fixture(params=golden_store.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def store(name: str, tmp_path: Path) -> AsyncIterator[MessageStore]:
    made = make_store(golden_store.unpack(name, tmp_path))
    await made.start()
    yield made
    await made.stop()


def queued(name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Messages of the manifest by the queue they lie in."""
    manifest = golden_store.manifest(name)
    entries = manifest["consumequeues"] | manifest["batch_consumequeues"]
    found = defaultdict(list)
    for message in golden_store.manifest(name)["messages"]:
        if f"{message['topic']}/{message['queueId']}" in entries and message["sysFlag"] & 12 not in (4, 12):
            found[message["topic"], message["queueId"]].append(message)
    return found


def compare_index(root: Path, name: str) -> None:
    """The index files have Java's bytes; their names are times.

    Not so the last one of ``clean``: after the kill Java entered the last message of the file before it a second time.
    """
    recorded = golden_store.files(name)
    expected = [recorded[path] for path in sorted(recorded) if path.startswith("index/")]
    built = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(built) == len(expected)
    certain = len(expected) - (name == "clean")
    assert built[:certain] == expected[:certain]


async def test_every_message_is_served_by_its_queue_offset(store: MessageStore, name: str):
    for (topic, queue_id), messages in queued(name).items():
        found = read_queue(store, topic, queue_id)

        assert [
            (one.queue_offset, one.commit_log_offset, one.store_size, hashlib.sha1(one.body).hexdigest())
            for one in found
        ] == [(one["queueOffset"], one["phyOffset"], one["size"], one["body_sha1"]) for one in messages]
    assert set(queued(name)) == {(queue.topic, queue.queue_id) for queue in store.queues}
    assert {queue.topic for queue in store.queues if queue.holds_batches} == BATCH_TOPICS


async def test_every_message_is_served_by_its_offset_id(store: MessageStore, name: str):
    records = dict(golden_store.records(name))

    for message in golden_store.manifest(name)["messages"]:
        offset = decode_message_id(message["offsetMsgId"]).offset
        assert store.commit_log.record(offset) == records[offset]
    assert store.commit_log.record(1) is None


async def test_every_message_is_served_by_each_key(store: MessageStore, name: str):
    asked = 0
    for message in golden_store.manifest(name)["messages"]:
        keys = [message["uniqKey"], *(message["keys"] or "").split()]
        for key in filter(None, keys):
            result = await store.queries.query_message(message["topic"], key, 64, 0, ALWAYS)
            assert message["phyOffset"] in [decode_record(record).commit_log_offset for record in result.records], key
            asked += 1
        if message["tags"]:
            by_tag = await store.queries.query_message(message["topic"], message["tags"], 64, 0, ALWAYS, "T")
            assert message["phyOffset"] in [decode_record(record).commit_log_offset for record in by_tag.records]
    assert asked > 150


async def test_tag_codes_select_what_java_entered(store: MessageStore, name: str):
    for (topic, queue_id), messages in queued(name).items():
        codes = [one.get("cqTagCode", 0) for one in messages]
        for code in set(codes):
            expected = [one["queueOffset"] for one, its in zip(messages, codes, strict=True) if its == code]
            first = fetch(store, topic, queue_id, 0, matches={code}.__contains__)
            found = decode_messages(pulled(first), decompress=False)
            offsets = [one.queue_offset for one in found]
            assert offsets == [at for at in expected if at < first.next_begin_offset]


async def test_the_log_continues_after_the_last_message(store: MessageStore, name: str):
    last = golden_store.manifest(name)["messages"][-1]
    before = store.queues.max_offset_in_queue("StPlain", 0)

    result = store.appender.put_message(
        MessageExtBrokerInner("StPlain", 0, b"new", b"UNIQ_KEY\x01NEW\x02", born_host=V4_HOST)
    )
    store.appender.dispatch()

    assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, before)
    end = last["phyOffset"] + last["size"]
    base = end - end % golden_store.COMMIT_LOG_FILE_SIZE
    assert result.physical_offset in (end, base + golden_store.COMMIT_LOG_FILE_SIZE)
    assert [one.body for one in read_queue(store, "StPlain", 0, before)] == [b"new"]
    assert len((await store.queries.query_message("StPlain", "NEW", 9, 0, ALWAYS)).records) == 1


async def test_a_clean_store_is_opened_without_a_change(tmp_path: Path):
    root = golden_store.unpack("clean", tmp_path)
    store = make_store(root)
    await store.start()
    await store.stop()

    recorded = golden_store.files("clean")
    for name, data in recorded.items():
        if name.startswith(("commitlog/", "consumequeue/", "batchconsumequeue/", "index/", "config/", "checkpoint")):
            assert (root / name).read_bytes() == data, name
    assert not (root / "abort").exists()


async def test_rebuilt_queues_and_index_have_javas_bytes(name: str, tmp_path: Path):
    """From the log alone."""
    root = golden_store.unpack(name, tmp_path)
    for folder in ("consumequeue", "batchconsumequeue", "index"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    store = make_store(root)
    await store.start()
    await store.stop()

    for file, data in golden_store.files(name).items():
        if file.startswith(("consumequeue/", "batchconsumequeue/")):
            assert (root / file).read_bytes() == data, file
    compare_index(root, name)


async def test_the_same_messages_put_again_give_javas_files(name: str, tmp_path: Path):
    """Puts each message of the record as the sender gave it, at the time it was stored."""
    recorded = golden_store.files(name)
    clock = FakeClock()
    store = make_store(tmp_path / "store", clock, batch_topics=BATCH_TOPICS)
    await store.start()
    for _, record in golden_store.records(name):
        message = decode_record(record)
        clock.advance((message.store_timestamp - clock.time_ms()) / 1000)
        store.commit_log.store_host = message.store_host
        result = store.appender.put_message(
            MessageExtBrokerInner(
                message.topic,
                message.queue_id,
                message.body,
                message.properties_bytes,
                message.flag,
                message.sys_flag,
                message.born_timestamp,
                message.born_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
            )
        )
        assert result.physical_offset == message.commit_log_offset
        assert store.commit_log.record(result.physical_offset) == record
    store.appender.dispatch()
    await store.stop()

    for path in sorted(recorded):
        if path.startswith(("commitlog/", "consumequeue/", "batchconsumequeue/")):
            assert (tmp_path / "store" / path).read_bytes() == recorded[path], path
    compare_index(tmp_path / "store", name)


async def test_after_a_kill_the_store_says_what_it_did(tmp_path: Path, caplog):
    store = make_store(golden_store.unpack("kill9", tmp_path))
    await store.start()

    assert "an unclean stop" in caplog.text
    assert (tmp_path / "store" / "abort").read_text() == str(os.getpid())
    await store.stop()
    assert not (tmp_path / "store" / "abort").exists()
