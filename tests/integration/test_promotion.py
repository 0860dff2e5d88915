"""A slave at any lag that is promoted: what was acknowledged is delivered, rather twice than not at all."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.broker.slave import slave_synchronize
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.link_proxy import BACK, LinkProxy
from tests.support.our_servers import OurServers, make_topic, wait_serving
from tests.support.ports import LOOPBACK
from tests.support.promotion import PromotedPair

RUNS, POP_RUNS = 100, 20
DELAY_S = 8
# More than two rounds of the tables of a slave.
ROUNDS_S = 2.5 * slave_synchronize.INTERVAL_S


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_synchronize, "INTERVAL_S", 0.1)
    monkeypatch.setattr(slave_synchronize, "LOOK_S", 0.02)


@pytest.fixture
def our_servers(tmp_path: Path) -> Iterator[OurServers]:
    """Starts our servers for one test; what still runs is ended with it."""
    servers = OurServers(tmp_path)
    yield servers
    servers.close()


@pytest.mark.long
@pytest.mark.proves("A log that copies another's", "a slave at any lag that is promoted")
@pytest.mark.parametrize(("restarts", "is_killed"), [(True, False), (False, True)], ids=["slow", "cut"])
async def test_a_promoted_slave_delivers_what_was_acknowledged(tmp_path: Path, *, restarts: bool, is_killed: bool):
    print(await PromotedPair(tmp_path, 1).run(restarts=restarts, is_killed=is_killed))


@pytest.mark.long
@pytest.mark.proves(
    "A log that copies another's", "a slave at any lag that is promoted: what was popped returns, acknowledged stays so"
)
async def test_what_was_popped_at_the_master_returns_at_a_promoted_slave(tmp_path: Path):
    print(await PromotedPair(tmp_path, 1).run_pops(is_killed=True))


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2, 2 + POP_RUNS))
async def test_what_was_popped_at_the_master_returns_at_a_slave_promoted_at_any_lag(tmp_path: Path, seed: int):
    print(f"seed {seed}:", await PromotedPair(tmp_path, seed).run_pops(is_killed=seed % 2 == 0))


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_promoted_slave_delivers_what_was_acknowledged_at_any_lag(tmp_path: Path, seed: int):
    print(f"seed {seed}:", await PromotedPair(tmp_path, seed).run(restarts=seed % 2 == 0, is_killed=seed % 4 < 2))


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_processes_deliver_what_was_acknowledged_before_their_link_was_cut(our_servers: OurServers, *, is_killed: bool):
    namesrv = our_servers.namesrv()
    common: dict[str, str | int] = {"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": f"{DELAY_S}s"}
    roles: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    master = our_servers.broker(namesrv.address, None, **common, **roles)
    with LinkProxy(master.port + 1) as link:
        copied_from: dict[str, str | int] = {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{LOOPBACK}:{link.port}",
        }
        slave = our_servers.broker(namesrv.address, None, **common, **copied_from)
        make_topic(master.address, namesrv.address, "T", 1)
        acknowledged = asyncio.run(send(namesrv.address))
        # From the master to the slave.
        link.drop(BACK, 1.0)
        asyncio.run(wait_for(namesrv.address, acknowledged))
        time.sleep(ROUNDS_S)
        master.kill()
        if is_killed:
            slave.kill()
        else:
            assert slave.stop() == 0
    promoted = our_servers.launch_broker(
        namesrv.address, slave.store, {**common, "brokerRole": "ASYNC_MASTER", "brokerId": 0}, port=slave.port
    )
    wait_serving(promoted, namesrv.address)
    asyncio.run(wait_for(namesrv.address, acknowledged))


async def send(namesrv: str) -> set[bytes]:
    """Send delayed and timer messages and a transaction; return the bodies, which are acknowledged."""
    commit = LocalTransactionState.COMMIT_MESSAGE
    bodies = set[bytes]()
    async with Producer("PG", namesrv) as producer, TransactionProducer("PT", namesrv, check=lambda _: commit) as other:
        for number in range(20):
            for message in (
                Message("T", b"delayed %d" % number, delay_time_level=1),
                Message("T", b"timer %d" % number, delay_time_ms=DELAY_S * 1000),
            ):
                assert (await producer.send(message)).send_status is SendStatus.SEND_OK
                bodies.add(message.body)
        ended = await other.send_in_transaction(Message("T", b"transaction"), lambda _: commit)
        assert ended.send_status is SendStatus.SEND_OK
    return bodies | {b"transaction"}


async def wait_for(namesrv: str, bodies: set[bytes]) -> None:
    """Wait until the queue of the topic has messages with these bodies."""
    got, queue, offset = set[bytes](), MessageQueue("T", "broker-a", 0), 0
    commit = LocalTransactionState.COMMIT_MESSAGE
    async with (
        asyncio.timeout(120),
        TransactionProducer("PT", namesrv, check=lambda _: commit) as producer,
        PullConsumer("Reads", namesrv) as consumer,
    ):
        # It is asked for the outcome of open transactions by brokers that it has sent to.
        await producer.send(Message("T", b"hello", wait_store_msg_ok=False))
        while not bodies <= got:
            found = await consumer.pull(queue, offset)
            got |= {each.body for each in found.messages}
            offset = found.next_begin_offset
