"""Offsets that return from a slave to its master."""

import pytest

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.slave.master_client import MasterClient
from rocketbroker.broker.slave.master_progress import MOST_SENDS, OffsetReturn
from tests.support.fakes import FakeClock


class Client(MasterClient):
    """A client that collects commits."""

    def __init__(self):
        self.sent: list[tuple[str, str, int, int]] = []

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.sent.append((group, topic, queue_id, offset))


@pytest.fixture
def offsets(tmp_path):
    found = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())
    found.keep_commits()
    return found


async def test_only_offsets_ahead_of_the_master_are_sent(offsets):
    client = Client()
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 1, 9)

    returning = OffsetReturn(offsets, client)
    await returning.send({"T@G": {0: 5, 1: 8}})
    assert client.sent == [], "a consumer may commit there just now"
    await returning.send({"T@G": {0: 5, 1: 8}})

    assert client.sent == [("G", "T", 1, 9)]
    assert offsets.slave_commits == {"T@G": {1: 9}}


async def test_an_offset_that_the_master_does_not_take_is_given_up(offsets, caplog):
    client = Client()
    offsets.commit("G", "T", 0, 5)
    returning = OffsetReturn(offsets, client)

    for _ in range(MOST_SENDS + 2):
        await returning.send({})

    assert len(client.sent) == MOST_SENDS
    assert offsets.slave_commits == {}
    assert "the master does not take offset 5 of group G in topic T, queue 0" in caplog.text


async def test_an_offset_is_not_sent_while_a_consumer_commits_at_the_master(offsets):
    client = Client()
    offsets.commit("G", "T", 0, 100)
    returning = OffsetReturn(offsets, client)

    for offset in range(90, 98):
        await returning.send({"T@G": {0: offset}})
    assert client.sent == []

    await returning.send({"T@G": {0: 97}})
    assert client.sent == [("G", "T", 0, 100)]


async def test_offsets_that_move_on_are_not_given_up(offsets, caplog):
    client = Client()
    returning = OffsetReturn(offsets, client)
    offsets.commit("G", "T", 0, 0)

    await returning.send({})
    for offset in range(1, 3 * MOST_SENDS):
        offsets.commit("G", "T", 0, offset)
        await returning.send({})

    assert client.sent[-1] == ("G", "T", 0, 3 * MOST_SENDS - 1)
    assert caplog.text == ""


def test_they_survive_a_restart(offsets, tmp_path):
    offsets.commit("G", "T", 0, 5)
    again = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())
    again.decode(offsets.encode())

    assert again.slave_commits == {"T@G": {0: 5}}


def test_own_offsets_stay_ahead_until_they_are_returned(offsets):
    offsets.commit("G", "T", 0, 5)

    offsets.follow({"T@G": {0: 3, 1: 4}, "U@G": {0: 1}}, None, {})
    assert offsets.table == {"T@G": {0: 5, 1: 4}, "U@G": {0: 1}}

    offsets.forget_slave_commit("T@G", 0)
    offsets.follow({"T@G": {0: 3}}, None, {})
    assert offsets.query("G", "T", 0) == 3
    assert offsets.query("G", "T", 1) == 4


def test_a_master_keeps_no_commits(tmp_path):
    master = ConsumerOffsetManager(tmp_path / "consumerOffset.json", FakeClock())

    master.commit("G", "T", 0, 5)

    assert master.slave_commits == {}
