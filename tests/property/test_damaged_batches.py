"""Bit flips, cuts, zeroed ranges, noise and lost files over the queue of a topic of batches; the log is whole.

Whatever one file has become, the queue ends where it did, each message that a consumer gets is the one that was put
there, those that are missing are named, and new ones get the offsets behind.
"""

import asyncio
import logging
import random
import shutil
from pathlib import Path

import pytest

from rocketbroker.client.core.pull_result import unwrap_inner_batches
from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.store.message_store import MessageStore
from tests.support.damaged_stores import KINDS, Damage, apply
from tests.support.fakes import FakeClock
from tests.support.stores import crash_copy, fetch, inner_batch, make_store, message, pulled

SEED = 20_261_122
SHORT, LONG = 150, 5_000
TOPIC = "Batches"
FILE = 46 * 8
RECORDS = 45


def opened(root: Path) -> MessageStore:
    return make_store(root, FakeClock(), batch_topics=[TOPIC], mapper_file_size_batch_consume_queue=FILE)


class Template:
    """A store that was stopped and one that was killed, and the bodies of both by queue offset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bodies: list[bytes] = []
        asyncio.run(self._make())

    async def _make(self) -> None:
        store = opened(self.folder / "clean")
        await store.start()
        chance = random.Random(SEED)
        for number in range(RECORDS):
            bodies = [b"%d.%d" % (number, each) for each in range(chance.choice((1, 1, 2, 3, 40)))]
            if len(bodies) == 1:
                result = store.appender.put_message(message(bodies[0], TOPIC))
            else:
                result = store.appender.put_inner_batch(inner_batch(*bodies, topic=TOPIC), len(bodies))
            assert result.queue_offset == len(self.bodies)
            self.bodies += bodies
            store.appender.dispatch()
        store.flusher.flush()
        store.queue_flusher.flush()
        crash_copy(self.folder / "clean", self.folder / "killed")
        await store.stop()

    def choose(self, chance: random.Random) -> Damage:
        store = chance.choice(("clean", "killed"))
        root = self.folder / store
        path = chance.choice(sorted((root / "batchconsumequeue" / TOPIC / "0").iterdir()))
        length = chance.choice((1, 2, 8, 46, 300))
        return Damage(store, str(path.relative_to(root)), chance.choice(KINDS), chance.randrange(FILE), length)


def read_all(store: MessageStore) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset, end = store.queues.min_offset_in_queue(TOPIC, 0), store.queues.max_offset_in_queue(TOPIC, 0)
    while offset < end:
        result = fetch(store, TOPIC, 0, offset)
        messages = unwrap_inner_batches(decode_messages(pulled(result)))
        found |= {each.queue_offset: each.body for each in messages}
        assert offset < result.next_begin_offset <= end
        offset = result.next_begin_offset
    return found


async def check(template: Template, root: Path, told: list[str]) -> None:
    bodies = template.bodies
    store = opened(root)
    await store.start()
    found = read_all(store)
    assert store.queues.max_offset_in_queue(TOPIC, 0) == len(bodies)
    assert all(body == bodies[number] for number, body in found.items())
    assert len(found) == len(bodies) or any("batchconsumequeue" in each for each in told), "some are missing in silence"
    assert store.appender.put_inner_batch(inner_batch(b"new", b"newer"), 2).queue_offset == len(bodies)
    store.appender.dispatch()
    assert list(read_all(store).items())[-2:] == [(len(bodies), b"new"), (len(bodies) + 1, b"newer")]
    await store.stop()
    again = opened(root)
    await again.start()
    assert found.keys() <= read_all(again).keys()
    await again.stop()


def damage_many(template: Template, folder: Path, cases: range) -> None:
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("rocketbroker")
    logger.addHandler(handler)
    try:
        for number in cases:
            damage = template.choose(random.Random(SEED + number))
            root = folder / "store"
            shutil.copytree(template.folder / damage.store, root)
            apply(damage, root)
            told.clear()
            try:
                asyncio.run(check(template, root, told))
            except Exception as error:
                raise AssertionError(f"case {number}: {damage}: {told}") from error
            shutil.rmtree(root)
    finally:
        logger.removeHandler(handler)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"))


@pytest.mark.long
@pytest.mark.proves("When the store is opened", "3. queues of batches")
@pytest.mark.timeout(300)
def test_any_damage_to_one_file(template: Template, tmp_path: Path) -> None:
    damage_many(template, tmp_path, range(SHORT))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many(template: Template, tmp_path: Path) -> None:
    damage_many(template, tmp_path, range(LONG))
