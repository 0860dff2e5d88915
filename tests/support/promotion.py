"""A pair whose slave lags by any number of bytes, loses its master, and is promoted by docs/operations/clusters.md.

All runs in one event loop: a name server, both brokers, clients, and the link that the slave copies the log over.
Topic ``KEPT`` gets delayed, timer and transactional messages, which nobody consumes before the promotion. Group ``G``
consumes topic ``CONSUMED``, commits, and sends some messages back.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.message import Message, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import ConsumerSendMsgBackRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.pop_load import GROUP, ORDERED, TOPIC, PopLoad, RemotingPops
from tests.support.ports import LOOPBACK
from tests.support.running import running, stopping
from tests.support.stores import crash_copy, message, read_queue
from tests.support.waiting import until

CONSUMED, KEPT, FILLING, RETRIED = "Consumed", "Kept", "Filling", "%RETRY%G"
HALVES: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES: Final = 2
_EACH: Final = 4
_FILLING: Final = 40
_READ: Final = 2_000
_UNLIMITED: Final = 1 << 62
# Rounds of the slave's tables that a lag lasts, and the time of one with the intervals of the tests.
_ROUNDS_S: Final = 0.4
SETTINGS: Final = {
    "brokerIP2": LOOPBACK, "mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000", "maxIndexNum": "20000", "messageDelayLevel": "1s", "timerPrecisionMs": "100",
    "haSendHeartbeatInterval": "200", "autoCreateTopicEnable": "false",
}  # fmt: skip


class Link:
    """A port that passes the slave's HA connection on to the master, and the log as far as ``allow`` says."""

    def __init__(self) -> None:
        self.target = 0
        self.port = 0
        self._budget = _UNLIMITED
        self._changed = asyncio.Event()
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        # A pump that was cancelled before its first turn closes nothing.
        for writer in self._writers:
            writer.close()

    def allow(self, size: int = _UNLIMITED) -> None:
        """Pass on so many bytes from the master, and hold what follows."""
        self._budget = size
        self._changed.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:
            writer.close()
            return
        self._writers.append(to_writer)
        for pump in (self._pump(reader, to_writer, is_log=False), self._pump(to_reader, writer, is_log=True)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_log: bool) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_READ):
                    while is_log and self._budget < len(data):
                        self._changed.clear()
                        await self._changed.wait()
                    self._budget -= len(data) if is_log else 0
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


class PromotedPair:
    """The pair, what it acknowledged, and what consumers got.

    Args:
        folder: for the stores.
        seed: of all that is random.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self.random = random.Random(seed)
        self._flush = self.random.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
        self._link = Link()
        self._namesrv = NamesrvController(namesrv_settings(0, folder))
        self._client = RemotingClient()
        self.acknowledged: set[bytes] = set()
        # Bodies of topic CONSUMED whose consumption has succeeded.
        self.consumed: set[bytes] = set()
        self.sent_back: set[bytes] = set()
        self._sent = 0

    @asynccontextmanager
    async def broker(self, store: str, **properties: str) -> AsyncIterator[BrokerController]:
        """A running broker of the pair."""
        given = {**SETTINGS, "flushDiskType": self._flush, **properties}
        settings = broker_settings(0, self._folder / store, self._namesrv.address, properties=given)
        async with running(BrokerController.bind(settings)) as broker:
            yield broker

    def slave(self) -> AbstractAsyncContextManager[BrokerController]:
        """The slave, with its store."""
        address = f"{LOOPBACK}:{self._link.port}"
        return self.broker("slave", brokerRole="SLAVE", brokerId="1", haMasterAddress=address)

    async def run(self, *, restarts: bool, is_killed: bool) -> str:
        """Send, let the slave lag, lose the master, promote the slave and check; return a line about it.

        Args:
            restarts: the slave is stopped while the master goes on, and started again; else its link is cut.
            is_killed: the slave is killed; else it is stopped as documented.
        """
        async with AsyncExitStack() as stack:
            roles = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "3000"}
            master, slave = await self._start(stack, CONSUMED, KEPT, FILLING, **roles)
            if self.random.random() < 0.5:
                # Progress that the slave has taken over already.
                await self._send()
                await self._work(master)
                await asyncio.sleep(_ROUNDS_S)
            await self._send()
            if restarts:
                await self._slaves.aclose()
            else:
                self._link.allow(self.random.randrange(3_000))
            await self._work(master)
            if restarts:
                # Enough to compare the logs, and a part of what the slave lacks.
                self._link.allow(8_000 + self.random.randrange(12_000))
                slave = await self._slaves.enter_async_context(self.slave())
                await until(lambda: not slave.replication.client.other_log)
            await asyncio.sleep(_ROUNDS_S)
            for _ in range(self.random.randrange(3)):
                self._fill(master)
                self._link.allow(self.random.randrange(40_000))
                await asyncio.sleep(_ROUNDS_S)
            lag = master.store.commit_log.max_offset - slave.store.commit_log.max_offset
            levels = slave.schedule.offset_table.get(1, 0), master.schedule.offset_table.get(1, 0)
            await self._lose_master(is_killed=is_killed)
            async with self.broker("promoted", brokerRole="ASYNC_MASTER") as promoted:
                for number in range(QUEUES):
                    body = b"new %d" % number
                    promoted.store.appender.put_message(message(body, CONSUMED, number))
                    self.acknowledged.add(body)
                promoted.store.appender.dispatch()
                await self._check(promoted)
        return (
            f"{len(self.acknowledged)} acknowledged, none lost; the slave lagged by {lag} bytes, and knew of "
            f"{levels[0]} of {levels[1]} deliveries"
        )

    async def _start(
        self, stack: AsyncExitStack, *topics: str, **roles: str
    ) -> tuple[BrokerController, BrokerController]:
        """Start the name server, the link and the pair; return master and slave, which knows the topics."""
        enter = stack.enter_async_context
        await enter(running(self._namesrv))
        await enter(running(self._link))
        await enter(stopping(self._client))
        self._masters, self._slaves = await enter(AsyncExitStack()), await enter(AsyncExitStack())
        master = await self._masters.enter_async_context(self.broker("master", **roles))
        self._link.target = master._settings.store.ha_listen_port
        slave = await self._slaves.enter_async_context(self.slave())
        for topic in topics:
            master.topic_configs.update(TopicConfig(topic, QUEUES, QUEUES))
        await asyncio.gather(*master.outer_api.register_all())
        await until(lambda: slave.topic_configs.topics.keys() >= {*topics})
        return master, slave

    async def _lose_master(self, *, is_killed: bool) -> None:
        """Cut the link and end both brokers; the store of the slave is then that of the promoted one."""
        self._link.allow(0)
        if is_killed:
            crash_copy(self._folder / "slave", self._folder / "promoted")
        await self._slaves.aclose()
        await self._link.stop()
        await self._masters.aclose()
        if not is_killed:
            (self._folder / "slave").rename(self._folder / "promoted")

    async def run_pops(self, *, is_killed: bool) -> str:
        """Pop at the master, promote the slave, pop on there and judge what consumers saw; return a line about it.

        The slave has all of a first part of the load, and some bytes of a second one, which may be as if they had not
        been.
        """
        async with AsyncExitStack() as stack:
            master, slave = await self._start(stack, TOPIC, brokerRole="ASYNC_MASTER")
            load = PopLoad(RemotingPops(master.address), self._seed)
            stack.push_async_callback(load.client.stop)
            admin = await stack.enter_async_context(AdminClient(self._namesrv.address))
            await admin.set_message_request_mode(master.address, TOPIC, GROUP, MessageRequestMode.POP, 3)
            await _work(load)

            await until(lambda: _tables(master) == _tables(slave))
            known = load.free.copy(), load.ordered.copy()
            self._link.allow(self.random.randrange(20_000))
            await _work(load)
            lag = master.store.commit_log.max_offset - slave.store.commit_log.max_offset
            await self._lose_master(is_killed=is_killed)
            load.free.fall_back(known[0])
            load.ordered.fall_back(known[1])
            async with self.broker("promoted", brokerRole="ASYNC_MASTER") as promoted:
                load.client = RemotingPops(promoted.address)
                stack.push_async_callback(load.client.stop)
                await _work(load)
                await load.drain(30)
                modes = await admin.get_all_message_request_mode(promoted.address)
            problems = load.free.violations() + load.ordered.violations() + load.ordered.violations_of_order()
            assert not problems, "\n".join(problems[:5])
            mode = modes.message_request_mode_map[TOPIC][GROUP]
            assert (mode.mode, mode.pop_share_queue_num) == (MessageRequestMode.POP, 3)
        return f"{len(load.free.sent)} messages, the slave lagged by {lag} bytes; {dict(load.counts)}"

    async def _send(self) -> None:
        """Send messages of each kind, which are acknowledged once the slave has them."""
        address = self._namesrv.address
        async with (
            Producer("PG", address) as producer,
            TransactionProducer("PT", address, check=lambda _: LocalTransactionState.COMMIT_MESSAGE) as transactions,
        ):
            for _ in range(_EACH):
                for topic, level, delay_ms in ((CONSUMED, 0, 0), (KEPT, 1, 0), (KEPT, 0, 1_000)):
                    body = self._body(topic)
                    result = await producer.send(Message(topic, body, delay_time_level=level, delay_time_ms=delay_ms))
                    self._acknowledge(body, result.send_status)
                body = self._body(KEPT)
                ended = await transactions.send_in_transaction(
                    Message(KEPT, body), lambda _: LocalTransactionState.COMMIT_MESSAGE
                )
                self._acknowledge(body, ended.send_status)

    def _body(self, topic: str) -> bytes:
        self._sent += 1
        return b"%b %d %b" % (topic.encode(), self._sent, b"x" * self.random.randrange(600))

    def _acknowledge(self, body: bytes, status: SendStatus) -> None:
        assert status is SendStatus.SEND_OK
        self.acknowledged.add(body)

    async def _work(self, master: BrokerController) -> None:
        """Let the master deliver, transactions end, and the consumer go on, while the slave gets little of it."""
        self._fill(master)
        await self._consume(master)
        kept = {body for body in self.acknowledged if body.startswith(KEPT.encode())}
        await until(lambda: kept <= bodies(master, KEPT))
        await self._consume(master)

    def _fill(self, master: BrokerController) -> None:
        """Store messages that are not acknowledged."""
        for _ in range(_FILLING):
            body = b"f" * self.random.randrange(1, 1_000)
            master.store.appender.put_message(message(body, FILLING, self.random.randrange(QUEUES)))
        master.store.appender.dispatch()

    async def _consume(self, master: BrokerController) -> None:
        """Consume and commit what the queues have; send some messages back, whose copies are delivered again later."""
        for queue_id in range(QUEUES):
            offset = max(master.consumer_offsets.query("G", CONSUMED, queue_id), 0)
            for found in read_queue(master.store, CONSUMED, queue_id, offset):
                if self.random.random() < 0.5:
                    header = ConsumerSendMsgBackRequestHeader(found.commit_log_offset, "G", 1)
                    command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
                    answer = await self._client.invoke(master.address, command)
                    assert answer.code == ResponseCode.SUCCESS, answer.remark
                    self.sent_back.add(found.body)
                else:
                    self.consumed.add(found.body)
                offset = found.queue_offset + 1
            master.consumer_offsets.commit("G", CONSUMED, queue_id, offset)

    async def _check(self, promoted: BrokerController) -> None:
        """Wait until consumers of the promoted broker can get all that was acknowledged and not consumed."""

        def lost() -> set[bytes]:
            got = set[bytes]()
            for topic in (CONSUMED, KEPT, RETRIED):
                for queue_id in range(QUEUES):
                    offset = max(promoted.consumer_offsets.query("G", topic, queue_id), 0)
                    got |= {each.body for each in read_queue(promoted.store, topic, queue_id, offset)}
            is_open = promoted.transactions.half_offsets.is_open
            # Their producer is asked, and commits them.
            got |= {half.body for half in read_queue(promoted.store, HALVES, 0) if is_open(half.queue_offset)}
            return self.acknowledged - got - self.consumed

        with suppress(TimeoutError):
            await until(lambda: not lost(), 20)
        assert not lost(), f"{len(lost())} of {len(self.acknowledged)} are lost: {sorted(lost())}"


def _tables(broker: BrokerController) -> object:
    """Return what a slave has to have in common with its master."""
    names = broker.topic_configs.topics.keys(), broker.subscription_groups.groups.keys()
    return broker.store.commit_log.max_offset, *names, broker._request_modes.table


async def _work(load: PopLoad) -> None:
    """Let clients work until there was enough of everything."""
    enough = {name: load.counts[name] + 10 for name in ("again", *(f"{group} acked" for group in (GROUP, ORDERED)))}
    async with load.running():
        await until(lambda: all(load.counts[name] >= number for name, number in enough.items()))


def bodies(broker: BrokerController, topic: str) -> set[bytes]:
    """Return the bodies in all queues of a topic."""
    found: list[MessageExt] = [each for queue_id in range(QUEUES) for each in read_queue(broker.store, topic, queue_id)]
    return {each.body for each in found}
