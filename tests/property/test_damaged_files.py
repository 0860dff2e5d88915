"""Any damage to the files of a store that was stopped cleanly: consumers get true messages only, and all sound ones."""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.store.message_store import MessageStore
from tests.support.damage import Place, entry_place, pulls, record_place
from tests.support.stores import make_store, message

COUNT = 200
QUEUES = (0, 1)
TAGS = ("red", "green", "blue")


def body_of(queue_id: int, number: int) -> bytes:
    return b"%d of %d " % (number, queue_id) * 100


def fill(root: Path) -> None:
    """A store of more than five files of the log, and four of each queue."""

    async def run() -> None:
        store = make_store(root)
        await store.start()
        for number in range(COUNT):
            for queue_id in QUEUES:
                properties = {"TAGS": TAGS[number % 3], "KEYS": f"k{number}"}
                store.appender.put_message(message(body_of(queue_id, number), queue_id=queue_id, properties=properties))
        await store.stop()

    asyncio.run(run())


class Opened:
    """A store, and where the record and the entry of each message are, and how long."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.places = {
            (queue_id, number): [record_place(store, number, queue_id), (entry_place(store, number, queue_id), 20)]
            for queue_id in QUEUES
            for number in range(COUNT)
        }


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage") / "store"
    fill(root)
    return root


@pytest.fixture(scope="module")
def opened(stopped: Path) -> Iterator[Opened]:
    with asyncio.Runner() as runner:
        root = stopped.with_name("opened")
        shutil.copytree(stopped, root)
        store = make_store(root)
        runner.run(store.start())
        yield Opened(store)
        runner.run(store.stop())


class Change(NamedTuple):
    """Place and content of one piece."""

    path: Path
    position: int
    before: bytes

    def touches(self, place: Place, length: int) -> bool:
        """Return true if it is in a range of a file."""
        end = self.position + len(self.before)
        return (
            place.path.parts[-2:] == self.path.parts[-2:]  # in whatever copy
            and self.position < place.position + length
            and place.position < end
        )


class Damage(NamedTuple):
    """Bytes of a file that are changed: which file of a kind, where (0 to 1), and what they become."""

    in_queue: bool
    file: float
    position: float
    # One bit that is flipped, or so many zeros.
    change: int

    def apply(self, files: Sequence[Path], end: int) -> Change:
        """Damage one of the files, of which the last is written up to ``end``."""
        number = int(self.file * len(files))
        path = files[number]
        size = end if number == len(files) - 1 else path.stat().st_size
        position = int(self.position * size)
        place = Place(path, position)
        length = 1 if self.change < 8 else min(self.change, size - position)
        before = place.read(length)
        place.write(bytes([before[0] ^ 1 << self.change]) if self.change < 8 else bytes(length))
        return Change(path, position, before)


class HeadDamage(NamedTuple):
    """One bit of the fixed part of a record: which message, which bit. Bits at any place of a file seldom meet it."""

    queue_id: int
    number: int
    bit: int

    def apply(self, place: Place) -> Change:
        """Damage the record that begins at a place."""
        at = Place(place.path, place.position + self.bit // 8)
        before = at.read(1)
        at.flip(self.bit % 8)
        return Change(at.path, at.position, before)


parts = st.floats(0, 1, exclude_max=True)
damages = st.lists(
    st.builds(Damage, st.booleans(), parts, parts, st.one_of(st.integers(0, 7), st.integers(8, 3000))), max_size=6
)
# Up to the length of the body, the times and hosts left out: no checksum covers them.
head_bits = st.one_of(st.integers(0, 20 * 8 - 1), st.integers(20 * 8, 36 * 8 - 1), st.integers(84 * 8, 88 * 8 - 1))
head_damages = st.lists(
    st.builds(HeadDamage, st.sampled_from(QUEUES), st.integers(0, COUNT - 1), head_bits), max_size=3
)


def check(store: MessageStore, sound: set[tuple[int, int]]) -> None:
    """All that is given is true and in order, and what is sound is given."""
    for queue_id in QUEUES:
        everything = pulls(store, store.queues.min_offset_in_queue("Topic", queue_id), queue_id=queue_id)
        numbers = [number for number, _ in everything]
        assert numbers == sorted(set(numbers))
        assert all(body == body_of(queue_id, number) for number, body in everything)
        assert {number for id_, number in sound if id_ == queue_id} <= set(numbers)
        green = pulls(store, matches={tags_code("green")}.__contains__, queue_id=queue_id)
        assert all(body == body_of(queue_id, number) for number, body in green)


def sound_of(opened: Opened, changes: list[Change]) -> set[tuple[int, int]]:
    """Queue and number of all messages that no change touches."""
    return {
        name
        for name, places in opened.places.items()
        if not any(change.touches(*place) for place in places for change in changes)
    }


@pytest.mark.long
@pytest.mark.proves("Damage", "any file, any damage")
@given(damages=damages, head_damages=head_damages)
@settings(max_examples=100, deadline=None)
def test_files_damaged_while_the_store_is_open(opened: Opened, damages: list[Damage], head_damages: list[HeadDamage]):
    log = opened.store.commit_log.queue
    queues = [queue.queue for queue in opened.store.queues.queues_of("Topic").values()]
    changes = []
    try:
        for damage in damages:
            files = queues[damage.change % 2] if damage.in_queue else log
            changes.append(damage.apply([file.path for file in files.files], files.files[-1].wrote))
        changes += [head.apply(opened.places[head.queue_id, head.number][0][0]) for head in head_damages]
        check(opened.store, sound_of(opened, changes))
    finally:
        for change in reversed(changes):
            Place(change.path, change.position).write(change.before)
    check(opened.store, set(opened.places))


@given(damages=damages)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_files_damaged_before_the_store_is_opened(stopped: Path, opened: Opened, damages: list[Damage]):
    # The first file of each: the last ones are looked at when the store is opened.
    root = stopped.with_name("damaged")
    shutil.copytree(stopped, root)
    changes = []
    for damage in damages:
        folder = root / (f"consumequeue/Topic/{damage.change % 2}" if damage.in_queue else "commitlog")
        first = folder / f"{0:020}"
        changes.append(damage.apply([first], first.stat().st_size))

    async def run() -> None:
        store = make_store(root)
        await store.start()
        try:
            check(store, sound_of(opened, changes))
        finally:
            await store.stop()

    try:
        asyncio.run(run())
    finally:
        shutil.rmtree(root)
