"""When a sync begins: at once for who is alone, with its siblings for one of many, and late for none."""

import asyncio

import pytest

from rocketbroker.store.flush import group_commit
from rocketbroker.store.flush.group_commit import GroupCommit
from tests.support.waiting import until


class Syncs:
    """How many were begun, and a group that begins them."""

    def __init__(self) -> None:
        self.begun = 0
        self.group = GroupCommit(self._begin)

    def _begin(self) -> None:
        self.begun += 1


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that ends by itself in no test."""
    monkeypatch.setattr(group_commit, "HOLD_S", 3600.0)


async def turn() -> None:
    """What the loop was to do next is done."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.usefixtures("endless")
async def test_a_lone_sender_is_not_delayed():
    syncs = Syncs()
    for number in range(1, 4):
        syncs.group.ask(1)
        assert syncs.begun == number - 1, "the loop handles first what it has read"
        await turn()
        assert syncs.begun == number
        syncs.group.served(1)


@pytest.mark.usefixtures("endless")
async def test_a_sync_waits_for_as_many_as_before():
    syncs = Syncs()
    syncs.group.served(3)
    syncs.group.ask(1)
    syncs.group.joined(2)
    await turn()
    assert syncs.begun == 0
    syncs.group.joined(3)
    syncs.group.joined(4)
    await turn()
    assert syncs.begun == 1, "once, whoever else came with the last"


async def test_a_sync_is_held_no_longer_than_that():
    syncs = Syncs()
    syncs.group.served(64)
    syncs.group.ask(1)
    await until(lambda: syncs.begun == 1)
    syncs.group.joined(64)
    await turn()
    assert syncs.begun == 1


@pytest.mark.usefixtures("endless")
async def test_when_others_have_gone_the_last_is_soon_held_no_more():
    syncs = Syncs()
    syncs.group.served(64)
    for _ in range(60):
        syncs.group.served(1)
    syncs.group.ask(1)
    await turn()
    assert syncs.begun == 1
