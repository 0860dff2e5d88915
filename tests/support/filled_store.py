"""A store with messages over several files of each kind, and checks that a store serves them."""

from pathlib import Path

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.commit_log_writer import overwrite
from tests.support.fakes import FakeClock
from tests.support.stores import ALWAYS, LOG_FILE, crash_copy, make_store, message, read_queue

COUNT = 250
QUEUES = 3
BODY = 700


class Filled:
    """A store with messages over several files of each kind, and where they lie."""

    def __init__(self, store: MessageStore, root: Path, clock: FakeClock) -> None:
        self.store = store
        self.root = root
        self.clock = clock
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def put(self, number: int) -> None:
        self.clock.advance(0.1)
        result = self.store.appender.put_message(
            message(
                b"%06d" % number + bytes(BODY),
                queue_id=number % QUEUES,
                properties={"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all", "TAGS": f"t{number % 2}"},
            )
        )
        assert result.status is PutMessageStatus.PUT_OK
        self.offsets.append(result.physical_offset)
        self.sizes.append(result.size)

    @property
    def log_end(self) -> int:
        return self.offsets[-1] + self.sizes[-1]


async def fill(root: Path, clock: FakeClock) -> Filled:
    """Make the store, which runs: all is dispatched and indexed, nothing is flushed."""
    store = make_store(root, clock)
    await store.start()
    made = Filled(store, root, clock)
    for number in range(COUNT):
        made.put(number)
        store.appender.dispatch()
    store.dispatcher.flush_index()
    return made


def log_file(root: Path, offset: int) -> tuple[Path, int]:
    """Return the file and position of an offset of the log."""
    return root / "commitlog" / f"{offset - offset % LOG_FILE:020d}", offset % LOG_FILE


async def check(root: Path, filled: Filled, count: int = COUNT, *, indexed: bool = True) -> MessageStore:
    """Open a store, check that it serves the first ``count`` messages and continues after them; return it."""
    store = make_store(root, filled.clock)
    await store.start()
    assert store.commit_log.max_offset == (filled.offsets[count - 1] + filled.sizes[count - 1] if count else 0)
    for queue_id in range(QUEUES):
        numbers = range(queue_id, count, QUEUES)
        found = read_queue(store, "Topic", queue_id)
        assert [one.body[:6] for one in found] == [b"%06d" % number for number in numbers]
        assert [one.queue_offset for one in found] == list(range(len(numbers)))
        assert store.queues.find_or_create("Topic", queue_id).next_offset == len(numbers)
    if indexed:
        for number in range(COUNT):
            found_by_key = [
                decode_record(record).commit_log_offset
                for record in (await store.queries.query_message("Topic", f"k{number}", 9, 0, ALWAYS)).records
            ]
            assert found_by_key == ([filled.offsets[number]] if number < count else []), number
    result = store.appender.put_message(message(b"after", queue_id=0))
    assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, len(range(0, count, QUEUES)))
    store.appender.dispatch()
    assert read_queue(store, "Topic", 0, result.queue_offset)[0].body == b"after"
    return store


def flipped_in_the_body(path: Path, position: int, size: int) -> None:
    """Change a byte of a record's body."""
    overwrite(path, position + 200, b"\x01")


def flipped_in_the_head(path: Path, position: int, size: int) -> None:
    """Change a byte of a record's magic code."""
    overwrite(path, position + 4, b"\x00")


def strange_size(path: Path, position: int, size: int) -> None:
    """Make a record claim two gigabytes."""
    overwrite(path, position, b"\x7f\xff\xff\xff")


def zeroed(path: Path, position: int, size: int) -> None:
    """Zero a range of a file."""
    overwrite(path, position, bytes(size))


async def opened(root: Path, filled: Filled) -> MessageStore:
    """Return a running store."""
    store = make_store(root, filled.clock)
    await store.start()
    return store


async def stopped(filled: Filled, tmp_path: Path) -> Path:
    """Return a copy of the store after a clean stop."""
    await filled.store.stop()
    return crash_copy(filled.root, tmp_path / "stopped")


def flushed(filled: Filled, tmp_path: Path) -> Path:
    """Return a copy of the store as after a kill; all but the last 3 s (30 messages) is known to be on disk."""
    filled.store.flusher.flush()
    filled.store.queue_flusher.flush()
    filled.store.checkpoint.advance(index_msg_timestamp=filled.clock.time_ms())
    filled.store.checkpoint.save()
    return crash_copy(filled.root, tmp_path / "flushed")


def serves_all_but(store: MessageStore, filled: Filled, lost: set[int], count: int = COUNT) -> None:
    """Check that each message is at its place and the queues have their number of messages."""
    for number in range(count):
        record = store.commit_log.record(filled.offsets[number])
        assert (record is None) == (number in lost), number
        if record is not None:
            queue = store.queues.find("Topic", number % QUEUES)
            assert queue
            assert queue.entry(number // QUEUES) == (
                filled.offsets[number],
                filled.sizes[number],
                queue.entry(number // QUEUES)[2],  # type: ignore[index]
            )
            assert decode_record(record).body == b"%06d" % number + bytes(BODY)
    for queue_id in range(QUEUES):
        assert store.queues.max_offset_in_queue("Topic", queue_id) == len(range(queue_id, count, QUEUES))
    assert store.commit_log.max_offset == filled.offsets[count - 1] + filled.sizes[count - 1]


def told(store: MessageStore, filled: Filled, number: int) -> bool:
    """Return true if the report names the file and the place of a message."""
    path, position = log_file(Path(store.config.store_path_root_dir), filled.offsets[number])
    return any(
        found.path == path and found.position <= position < found.position + found.length
        for found in store.recovery_report.corrupt_ranges
    )
