"""A generated store is what MessageStore writes for the same messages, and opens as one that it wrote."""

from pathlib import Path

import pytest

from bench.store_generator import HOST, NUMBER, Messages, StoreGenerator, with_number
from rocketbroker.codec.message.message_id import decode_unique_id
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.stores import make_store, message, read_queue, store_config

FIRST = 1_795_255_000_000
COUNT = 1000
PROPERTIES = (
    b"KEYS\x01order-" + NUMBER + b" common\x02UNIQ_KEY\x017F00000112671B28CDFA000" + NUMBER + b"\x02TAGS\x01T\x02"
)
MESSAGES = Messages(("TopicA", "TopicB"), 3, b"body " + NUMBER + b"." + NUMBER, PROPERTIES, FIRST, per_ms=10)
INDEX_NUM = 1500


def generator(root: Path, messages: Messages = MESSAGES, count: int = COUNT, **settings: int) -> StoreGenerator:
    made = StoreGenerator(store_config(root, **{"max_index_num": INDEX_NUM, **settings}), messages, count)
    made.write()
    return made


async def put_all(store: MessageStore, clock: FakeClock, messages: Messages, count: int) -> None:
    for number in range(count):
        clock.advance((messages.timestamp(number) - clock.time_ms()) / 1000)
        topic, queue_id = messages.place(number % messages.streams)
        body, properties = with_number(messages.body, number), with_number(messages.properties, number)
        store.appender.put_message(
            message(
                body, topic, queue_id, properties=properties, born_host=HOST, born_timestamp=messages.timestamp(number)
            )
        )
    store.appender.dispatch()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def written(root: Path) -> dict[str, bytes]:
    """The log and queues by file; index files by number, since their names are the times when they were made."""
    found = {name: contents(root / name) for name in ("commitlog", "consumequeue")}
    flat = {f"{folder}/{name}": data for folder, files in found.items() for name, data in files.items()}
    return flat | {f"index/{i}": data for i, data in enumerate(contents(root / "index").values())}


@pytest.mark.parametrize(
    "properties",
    [PROPERTIES, b"", b"KEYS\x01k" + NUMBER + b"\x02", b"TAGS\x01a\x02"],
    ids=["all", "no", "keys", "tags"],
)
async def test_each_byte_is_what_the_store_writes(tmp_path: Path, properties: bytes):
    messages = Messages(("TopicA", "TopicB"), 3, b"body " + NUMBER, properties, FIRST, per_ms=10)
    clock = FakeClock(FIRST)
    store = make_store(tmp_path / "ours", clock, store_host=HOST, max_index_num=INDEX_NUM)
    await store.start()
    await put_all(store, clock, messages, COUNT)
    await store.stop()

    made = generator(tmp_path / "made", messages)

    found, expected = written(tmp_path / "made"), written(tmp_path / "ours")
    # The store makes the next file of the log ahead.
    spare = f"commitlog/{made.offset_of((COUNT - 1) // made.per_file * made.per_file + made.per_file):020d}"
    assert not any(expected.pop(spare))
    assert found.keys() == expected.keys()
    assert [name for name, data in found.items() if data != expected[name]] == []


@pytest.mark.parametrize("clean", [True, False])
async def test_the_store_opens_and_gives_all_messages_and_keys(tmp_path: Path, clean: bool):
    made = generator(tmp_path)
    if clean:
        made.mark_clean()
    else:
        made.mark_crashed(0.5, index_known=True)

    store = make_store(tmp_path, FakeClock(made.last_timestamp + 1000), store_host=HOST, max_index_num=INDEX_NUM)
    await store.start()
    try:
        assert store.lock.was_clean is clean
        assert store.commit_log.max_offset == made.offset_of(COUNT - 1) + made.template.size
        for stream in range(MESSAGES.streams):
            numbers = range(stream, COUNT, MESSAGES.streams)
            found = read_queue(store, *MESSAGES.place(stream))
            assert [each.body for each in found] == [with_number(MESSAGES.body, number) for number in numbers]
            assert [each.queue_offset for each in found] == list(range(len(numbers)))
            assert {each.tags for each in found} == {"T"}
        for number in (0, 7, 499, 500, COUNT - 1):
            topic, _ = MESSAGES.place(number % MESSAGES.streams)
            key = f"order-{number:09d}"
            result = await store.queries.query_message(topic, key, 32, 0, made.last_timestamp)
            assert len(result.records) == 1
    finally:
        await store.stop()


def test_the_checkpoint_says_what_is_known(tmp_path: Path):
    made = generator(tmp_path, count=100)
    config = made.config

    made.mark_crashed(0.5, index_known=False)
    assert decode_checkpoint(config.checkpoint_path.read_bytes())[:3] == (FIRST + 5 + 3000, FIRST + 5 + 3000, 0)
    assert config.abort_path.exists()

    made.mark_clean()
    assert decode_checkpoint(config.checkpoint_path.read_bytes())[:3] == (FIRST + 9,) * 3
    assert not config.abort_path.exists()


def test_unique_ids_are_valid():
    text = with_number(PROPERTIES, 123).partition(b"UNIQ_KEY\x01")[2][:32]

    assert decode_unique_id(text.decode()).ip == "127.0.0.1"


def test_the_bytes_on_disk_are_reported_before(tmp_path: Path):
    made = generator(tmp_path, count=5000, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)

    on_disk = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk == pytest.approx(made.disk_bytes, rel=0.2)


@pytest.mark.parametrize(("count", "told"), [(0, "cannot be numbered"), (10**9 + 1, "cannot be numbered")])
def test_messages_that_cannot_be_numbered_are_rejected(tmp_path: Path, count: int, told: str):
    with pytest.raises(ValueError, match=told):
        StoreGenerator(store_config(tmp_path), MESSAGES, count)


def test_topics_of_different_lengths_are_rejected():
    with pytest.raises(ValueError, match="not ASCII names of one length"):
        Messages(("A", "AB"), 1, b"", b"", FIRST)


def test_records_longer_than_a_file_are_rejected(tmp_path: Path):
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=4096)

    with pytest.raises(ValueError, match="do not fit into files of the CommitLog"):
        StoreGenerator(config, Messages(("A",), 1, bytes(5000), b"", FIRST), 1)
