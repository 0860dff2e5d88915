"""Mixed pairs with Apache's broker: its slave follows our master, and our slave follows its master."""

import asyncio

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.storefile.config_tables import decode_table
from tests.support.java import Java
from tests.support.java_lines import Sent, check_content, check_contiguous, check_places, got, sent
from tests.support.our_servers import OurServer, OurServers, make_topic, wait_serving
from tests.support.pop_moves import ENDS, check_rest, committed, pop_some
from tests.support.replicated_logs import same_logs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.soak, pytest.mark.timeout(600)]

SIZES: dict[str, str | int] = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6_000}
SLAVE: dict[str, str | int] = {**SIZES, "brokerRole": "SLAVE", "brokerId": 1}
MASTER: dict[str, str | int] = {
    **SIZES, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 60_000, "brokerIP2": "127.0.0.1",
}  # fmt: skip
# Longer than a promotion takes: what is due while Apache's broker starts may be lost.
IN_FLIGHT_MS = 60_000


def send(java: Java, namesrv: str, plan: str, first: int) -> list[Sent]:
    done = java.run("Produce", f"namesrv={namesrv}", "topic=Pair", f"plan={plan}", f"first={first}", timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    acknowledged = sent(done.stdout)
    assert {each.status for each in acknowledged} == {"SEND_OK"}
    return acknowledged


def check_pulled(java: Java, namesrv: str, acknowledged: list[Sent]) -> None:
    done = java.run("Pull", f"namesrv={namesrv}", "topic=Pair", "group=G", "suspend=1000")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    messages = got(done.stdout)
    check_content(messages)
    check_contiguous(messages)
    check_places(messages, acknowledged)


@pytest.mark.proves("A log that copies another's", "pairs with Apache's broker")
def test_apaches_slave_follows_our_master(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    master = our_servers.broker(namesrv.address, None, **MASTER)
    slave = java.broker(namesrv.address, None, **SLAVE)
    make_topic(master.address, namesrv.address, "Pair", 3)
    acknowledged = send(java, namesrv.address, "sync:400:4,batch:400:1", 0)
    check = java.mqadmin("haStatus", "-b", master.address, namesrv=namesrv.address)
    assert "#SlaveNum\t1" in check.stdout, check.stdout + check.stderr
    assert " OK " in check.stdout

    master.kill()
    again = our_servers.launch_broker(namesrv.address, master.store, MASTER, port=master.port)
    wait_serving(again, namesrv.address)
    acknowledged += send(java, namesrv.address, "sync:100:1", 2000)

    wait_until(lambda: same_logs(again.store, slave.store), "the slave has the master's log")
    check_pulled(java, namesrv.address, acknowledged)


@pytest.mark.proves("A log that copies another's", "pairs with Apache's broker")
def test_our_slave_follows_apaches_master(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv()
    master = java.broker(namesrv.address, None, **MASTER)
    slave = our_servers.broker(namesrv.address, None, **SLAVE)
    make_topic(master.address, namesrv.address, "Pair", 3)
    acknowledged = send(java, namesrv.address, "sync:400:4,batch:400:1", 0)

    slave.kill()
    again = our_servers.launch_broker(namesrv.address, slave.store, SLAVE, port=slave.port)
    wait_serving(again, namesrv.address)
    acknowledged += send(java, namesrv.address, "sync:100:1", 2000)

    wait_until(lambda: same_logs(master.store, again.store), "the slave has the master's log")
    check_pulled(java, namesrv.address, acknowledged)
    check = java.mqadmin("haStatus", "-b", again.address, namesrv=namesrv.address)
    assert f"#MasterAddr\t127.0.0.1:{master.port + 1}\n" in check.stdout, check.stdout + check.stderr
    assert "replicationProblem" not in asyncio.run(runtime(namesrv.address, again.address))
    asyncio.run(commit(namesrv.address, 7))
    wait_until(lambda: followed(again) == 7, "the slave has the progress of a group at the master")


@pytest.mark.proves("A log that copies another's", "pairs with Apache's broker")
@pytest.mark.parametrize("master_of", ["ours", "apache"])
def test_messages_in_flight_return_at_the_promoted_slave_of_the_other_kind(
    java: Java, our_servers: OurServers, master_of: str
):
    namesrv = our_servers.namesrv().address
    kinds = [our_servers.broker, java.broker] if master_of == "ours" else [java.broker, our_servers.broker]
    master = kinds[0](namesrv, None, **MASTER)
    slave = kinds[1](namesrv, None, **SLAVE)
    pop_some(master.address, IN_FLIGHT_MS)
    wait_until(lambda: committed(slave.store) == ENDS, "the slave has the offsets of the group")
    wait_until(lambda: same_logs(master.store, slave.store), "the slave has the master's log")
    master.kill()
    slave.kill()

    promoted = kinds[1](namesrv, slave.store, **SIZES)
    check_rest(promoted.address, IN_FLIGHT_MS, has_batch=False)


async def commit(namesrv: str, offset: int) -> None:
    async with PullConsumer("Follows", namesrv) as consumer:
        await consumer.commit_offset(MessageQueue("Pair", "broker-a", 0), offset)


def followed(slave: OurServer) -> int:
    """Return the offset of the group in a slave's file, -1 without one."""
    path = slave.store / "config" / "consumerOffset.json"
    table = decode_table(path.name, path.read_bytes(), ConsumerOffsetSerializeWrapper).offset_table
    return table.get("Pair@Follows", {}).get(0, -1)


async def runtime(namesrv: str, broker: str) -> dict[str, str]:
    async with AdminClient(namesrv) as admin:
        return await admin.fetch_broker_runtime_stats(broker)
