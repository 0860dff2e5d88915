import pytest

from tests.support.fakes import FakeClock
from tests.support.running import running
from tests.support.stores import make_store
from tests.support.timers import Timer


@pytest.fixture
def clock():
    return FakeClock(1_795_255_168_558)


@pytest.fixture
async def store(tmp_path, clock):
    found = make_store(
        tmp_path / "store", clock, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000
    )
    async with running(found):
        yield found


@pytest.fixture
async def timer(store, clock):
    return await Timer(store, clock).load()


@pytest.fixture
def again(store, clock):
    """Makes another timer over the same store, as the next process of the broker has it."""

    async def make(**settings):
        return await Timer(store, clock, **settings).load()

    return make
