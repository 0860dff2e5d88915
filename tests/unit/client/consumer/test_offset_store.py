"""Offsets at brokers and in files."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.client.consumer.offset_store import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.requests import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError, RemotingTimeoutError

FIRST, SECOND = MessageQueue("T", "a", 0), MessageQueue("T", "b", 1)


class Broker:
    """Answers offset requests."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.known: int | None = None
        self.silent = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def __call__(self, queue: MessageQueue, command: Command, timeout_s: float | None = None) -> Command:
        await self.answers.wait()
        if self.silent:
            raise RemotingTimeoutError("silent")
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed.append(command.header.commit_offset)
            return response()
        if self.known is None:
            return response(ResponseCode.QUERY_NOT_FOUND, "none")
        return response(header={"offset": str(self.known)})


async def test_only_changed_offsets_go_to_the_broker():
    broker = Broker()
    store = RemoteBrokerOffsetStore("CG", QueueOffsets(broker))
    store.update(FIRST, 5)
    await store.persist([FIRST, SECOND])
    await store.persist([FIRST])
    store.update(FIRST, 6)
    await store.persist([FIRST])
    assert broker.committed == [5, 6]
    store.remove(FIRST)
    await store.persist([FIRST])
    assert broker.committed == [5, 6]


async def test_a_commit_that_ends_after_the_removal_is_forgotten():
    broker = Broker()
    store = RemoteBrokerOffsetStore("CG", QueueOffsets(broker))
    store.update(FIRST, 5)
    broker.answers.clear()
    commit = asyncio.create_task(store.persist([FIRST]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.remove(FIRST)
    broker.answers.set()
    await commit
    store.update(FIRST, 5)
    await store.persist([FIRST])
    assert broker.committed == [5, 5]


async def test_a_failed_commit_is_logged_and_repeated(caplog: pytest.LogCaptureFixture):
    broker = Broker()
    store = RemoteBrokerOffsetStore("CG", QueueOffsets(broker))
    store.update(FIRST, 5)
    broker.silent = True
    await store.persist([FIRST])
    assert "commit of offset 5" in caplog.text
    broker.silent = False
    await store.persist([FIRST])
    assert broker.committed == [5]


@pytest.mark.parametrize(("known", "offset"), [(None, None), (-1, None), (0, 0), (7, 7)])
async def test_a_broker_knows_the_offset_or_not(known: int | None, offset: int | None):
    broker = Broker()
    broker.known = known
    assert await RemoteBrokerOffsetStore("CG", QueueOffsets(broker)).read(FIRST) == offset


async def test_a_file_keeps_offsets_in_the_form_of_java(tmp_path: Path):
    path = tmp_path / "group" / "offsets.json"
    store = LocalFileOffsetStore(path)
    assert await store.read(FIRST) is None
    store.update(FIRST, 5)
    store.update(SECOND, 9)
    await store.persist([FIRST])
    assert path.read_bytes() == b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}'
    await store.persist([SECOND])
    again = LocalFileOffsetStore(path)
    assert (await again.read(FIRST), await again.read(SECOND)) == (5, 9)
    assert path.with_name("offsets.json.bak").exists()


async def test_a_file_of_java_is_read(tmp_path: Path):
    path = tmp_path / "offsets.json"
    path.write_text('{\n\t"offsetTable":{{\n\t\t"brokerName":"a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}:5\n\t}\n}')
    assert await LocalFileOffsetStore(path).read(FIRST) == 5


async def test_a_damaged_file_without_a_backup_is_an_error(tmp_path: Path):
    path = tmp_path / "offsets.json"
    path.write_text("{")
    with pytest.raises(ConfigError):
        await LocalFileOffsetStore(path).read(FIRST)


async def test_a_file_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    store = LocalFileOffsetStore(tmp_path / "file" / "offsets.json")
    store._loaded = {}
    store.update(FIRST, 5)
    await store.persist([FIRST])
    assert "the offsets were not written" in caplog.text


def test_a_file_has_one_consumer_at_a_time(tmp_path: Path):
    first, second = LocalFileOffsetStore(tmp_path / "o.json"), LocalFileOffsetStore(tmp_path / "o.json")
    first.open()
    with pytest.raises(ClientStateError, match="give each one a file of its own"):
        second.open()
    first.close()
    second.open()
    second.close()
