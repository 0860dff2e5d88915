import pytest

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.store.read.message_fetcher import MOST_BYTES
from tests.support.damage import overwrite
from tests.support.stores import make_store, message


@pytest.fixture
async def store(tmp_path):
    found = make_store(tmp_path)
    await found.start()
    yield found
    await found.stop()


def put(store, count, body=b"%d"):
    for number in range(count):
        store.appender.put_message(message(body % number))
    store.appender.dispatch()
    return store.queues.queues_of("Topic")[0]


def bodies(records):
    return [decode_record(record).body for record in records]


async def test_records_of_entries_in_any_order(store):
    queue = put(store, 5)
    entries = store.entry_reader.entries(queue, 1, 3)
    assert [entry[0] for entry in entries] == [1, 2, 3]
    assert bodies(await store.entry_reader.records(queue, entries)) == [b"1", b"2", b"3"]
    assert bodies(await store.entry_reader.records(queue, entries[::-1])) == [b"3", b"2", b"1"]
    assert await store.entry_reader.records(queue, []) == []


async def test_more_than_the_loop_reads_comes_from_the_thread(store):
    queue = put(store, 60, body=b"%d" + bytes(20_000))
    entries = list(enumerate(queue.entries(0, 60)))
    records = await store.entry_reader.records(queue, [(number, *entry) for number, entry in entries])
    assert [body.rstrip(b"\0") for body in bodies(records)] == [b"%d" % number for number in range(60)]


async def test_what_is_damaged_is_left_out_and_reported(store):
    queue = put(store, 4)
    entries = store.entry_reader.entries(queue, 0, 4)
    position = entries[1][1] + 90  # in its body
    file = store.commit_log.queue.files[0]
    overwrite(file, position - 2, b"xy")
    # And an entry that can name no record.
    overwrite(queue.queue.files[0], 40, (2**40).to_bytes(8, "big"))
    entries = store.entry_reader.entries(queue, 0, 4)
    assert entries[2][1:] == (-1, 0, 0)
    assert bodies(await store.entry_reader.records(queue, entries)) == [b"0", b"3"]
    assert store.damage_log.count == 2


async def test_removed_messages_are_left_out(store):
    queue = put(store, 6, body=b"%d" + bytes(30_000))
    entries = store.entry_reader.entries(queue, 0, 6)
    store.commit_log.queue.take_out(store.commit_log.queue.files[0])
    assert len(await store.entry_reader.records(queue, entries)) < 6


async def test_entries_of_single_messages(store):
    queue = put(store, 100)
    wanted = [0, 1, 2, 7, 50, 59, 60, 61, 99]
    entries = store.entry_reader.entries_at(queue, wanted)
    assert [entry[0] for entry in entries] == wanted
    assert bodies(await store.entry_reader.records(queue, entries)) == [b"%d" % number for number in wanted]


async def test_entries_that_a_queue_has_no_more(store):
    queue = put(store, 3)
    queue.min_offset = 1
    assert [entry[:2] for entry in store.entry_reader.entries_at(queue, [0, 2, 3])][::2] == [(0, -1), (3, -1)]


async def test_no_more_bytes_than_the_loop_checks_at_a_time(store):
    queue = put(store, 60, body=b"%d" + bytes(20_000))
    assert len(store.entry_reader.entries(queue, 0, 60)) == MOST_BYTES // 20_100
    assert len(store.entry_reader.entries_at(queue, range(0, 60, 2))) == MOST_BYTES // 20_100 + 1
