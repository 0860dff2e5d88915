"""A master and its slave as processes, killed and restarted in any order while messages are sent."""

import asyncio
from contextlib import suppress

import pytest

from rocketbroker.client.admin_client import AdminClient
from rocketbroker.client.message import Message
from rocketbroker.client.producer import Producer
from rocketbroker.client.pull_consumer import PullConsumer
from rocketbroker.client.send_result import SendStatus
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.common.errors import RocketBrokerError
from tests.support.commit_log_follower import Place
from tests.support.our_servers import OurServer, OurServers, make_topic, wait_serving
from tests.support.replicated_logs import check_history, same_logs
from tests.support.waiting import until

LOG_FILE = 1 << 20
TOPIC = "Copied"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
BOTH: dict[str, str | int] = {"mappedFileSizeCommitLog": LOG_FILE}
MASTER = {**BOTH, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 1000}
SLAVE = {**BOTH, "brokerRole": "SLAVE", "brokerId": 1}


class Pair:
    """A synchronous master and its slave, and what was acknowledged."""

    def __init__(self, servers: OurServers) -> None:
        self._servers = servers
        self.namesrv = servers.namesrv()
        self.master = self._start(MASTER)
        self.slave = self._start(SLAVE)
        self.acknowledged: dict[Place, bytes] = {}
        self.statuses: set[SendStatus] = set()
        self.sending: asyncio.Task[None]

    def _start(self, settings: dict[str, str | int], old: OurServer | None = None) -> OurServer:
        store, port = (old.store, old.port) if old else (None, 0)
        server = self._servers.launch_broker(self.namesrv.address, store, settings, port=port)
        wait_serving(server, self.namesrv.address)
        return server

    async def restart_master(self) -> None:
        self.master = await asyncio.to_thread(self._start, MASTER, self.master)

    async def restart_slave(self) -> None:
        self.slave = await asyncio.to_thread(self._start, SLAVE, self.slave)

    async def send(self) -> None:
        """Send until cancelled; note what was acknowledged by master and slave."""
        async with Producer("PG", self.namesrv.address, send_timeout_s=3) as producer:
            number = 0
            while True:
                number += 1
                body = b"%d " % number + bytes(number % 700)
                with suppress(RocketBrokerError):
                    result = await producer.send(Message(TOPIC, body), QUEUE)
                    self.statuses.add(result.send_status)
                    if result.send_status is SendStatus.SEND_OK:
                        self.acknowledged[Place(TOPIC, 0, result.queue_offset)] = body
                await asyncio.sleep(0.001)

    async def more(self) -> None:
        """Wait until more messages were acknowledged by both."""
        before = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > before + 20 or self.sending.done())
        assert not self.sending.done()


@pytest.mark.timeout(300)
async def test_no_message_that_both_have_is_lost_by_the_kill_of_either(servers: OurServers):
    pair = await asyncio.to_thread(Pair, servers)
    await asyncio.to_thread(make_topic, pair.master.address, pair.namesrv.address, TOPIC, 1)
    sending = pair.sending = asyncio.create_task(pair.send())
    try:
        await pair.more()
        pair.slave.kill()
        await until(lambda: SendStatus.FLUSH_SLAVE_TIMEOUT in pair.statuses)
        await pair.restart_slave()
        await pair.more()
        pair.master.kill()
        check_history(dict(pair.acknowledged), pair.slave.store, LOG_FILE)
        await pair.restart_master()
        await pair.more()
        pair.master.kill()
        pair.slave.kill()
        check_history(dict(pair.acknowledged), pair.slave.store, LOG_FILE)
        await pair.restart_slave()
        await pair.restart_master()
        await pair.more()
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    await until(lambda: same_logs(pair.master.store, pair.slave.store))
    check_history(pair.acknowledged, pair.master.store, LOG_FILE)
    await check_reads(pair)


async def check_reads(pair: Pair) -> None:
    """Check that consumers get the messages in order, and that the slave says that it follows."""
    count, bodies = len(pair.acknowledged), list[bytes]()
    async with PullConsumer("CG", pair.namesrv.address) as consumer, asyncio.timeout(60):
        while len(bodies) < count:
            found = await consumer.pull(QUEUE, len(bodies))
            bodies += [message.body for message in found.messages]
    assert [pair.acknowledged.get(Place(TOPIC, 0, at), body) for at, body in enumerate(bodies)] == bodies
    async with AdminClient(pair.namesrv.address) as admin:
        runtime = await admin.fetch_broker_runtime_stats(pair.slave.address)
        assert "replicationProblem" not in runtime
