"""A broker that is killed after it stored a message and before it said so: its sender knows that it knows nothing."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import RemotingError
from tests.support.commit_log_follower import CommitLogFollower
from tests.support.faulty_sync import runner
from tests.support.our_servers import OurServer, OurServers, wait_serving
from tests.support.waiting import until

LOG_FILE = 1 << 20
# No send is answered while the sync is stalled, however long the test takes.
SETTINGS: dict[str, str | int] = {
    "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 600_000, "mappedFileSizeCommitLog": LOG_FILE,
}  # fmt: skip
TOPIC = "Unanswered"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
# Enough for the broker to handle some of them as a run.
SENDERS = 30


def launch(servers: OurServers, namesrv: OurServer, mark: Path, old: OurServer | None = None) -> OurServer:
    store, port = (old.store, old.port) if old else (None, 0)
    broker = servers.launch_broker(namesrv.address, store, SETTINGS, port=port, runner=runner(mark))
    wait_serving(broker, namesrv.address)
    return broker


def holds(follower: CommitLogFollower, count: int) -> bool:
    follower.read_on()
    return len(follower.records) == count


async def read_all(namesrv: str, count: int) -> list[bytes]:
    """The first messages of the queue; no more than ``count`` come."""
    bodies: list[bytes] = []
    async with PullConsumer("CG", namesrv) as consumer:
        async with asyncio.timeout(60):
            while len(bodies) < count:
                result = await consumer.pull(QUEUE, len(bodies))
                bodies += [message.body for message in result.messages]
        assert await consumer.max_offset(QUEUE) == len(bodies)
    return bodies


@pytest.mark.long
@pytest.mark.proves("What is promised", "a send that was not answered")
async def test_only_a_failed_send_may_be_stored_twice(servers: OurServers, tmp_path: Path):
    mark = tmp_path / "stalled"
    namesrv = servers.namesrv()
    broker = await asyncio.to_thread(launch, servers, namesrv, mark)
    follower = CommitLogFollower(broker.store, LOG_FILE)
    wanted = [b"%d" % n for n in range(SENDERS)]
    async with Producer("PG", namesrv.address, send_timeout_s=600) as producer:
        await producer.send(Message(TOPIC, b"before"), QUEUE)
        mark.touch()
        sends = [asyncio.create_task(producer.send(Message(TOPIC, body), QUEUE)) for body in wanted]
        await until(lambda: holds(follower, 1 + SENDERS))
        assert not any(send.done() for send in sends), "nothing is acknowledged before it is on disk"
        assert await read_all(namesrv.address, 1) == [b"before"], "nor shown to a consumer"
        broker.kill()
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, RemotingError), "the sender learns that it has no answer"

        mark.unlink()
        broker = await asyncio.to_thread(launch, servers, namesrv, mark, broker)
        with suppress(RemotingError):  # the first use of the broken connection
            await producer.send(Message(TOPIC, b"again"), QUEUE)
        results = [await producer.send(Message(TOPIC, body), QUEUE) for body in wanted]

    ends = max(result.queue_offset for result in results) + 1
    stored = Counter(await read_all(namesrv.address, ends))
    assert stored[b"before"] == 1, "what was acknowledged is there once"
    assert {body: stored[body] for body in wanted} == dict.fromkeys(wanted, 2), "they were in the log, and came again"
    assert stored.keys() <= {b"before", b"again", *wanted}
