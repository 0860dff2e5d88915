"""Faults of a cluster by name: each happens, lasts a while, is checked and ends."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final

from rocketbroker.client import Message, PullConsumer, SendStatus
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from tests.support.clocked_broker import ClockedBroker
from tests.support.fault_cluster import PROGRESS_LIMIT_S, SLAVE_ROLE, FaultCluster
from tests.support.machines import CLIENTS, MASTER, NAMESRV, SLAVE
from tests.support.our_servers import OurServer, make_topic, wait_serving
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

Fault = Callable[[FaultCluster], None]
HOUR_S: Final = 3600
LOSS: Final = 0.3
# One freeze in ten is long.
_LONG_FREEZE: Final = 0.1
_MESSAGES: Final = 120
_REMEDY: Final = "if the master lost its store, stop both and copy"
LATER: Final = "Later"
# Larger than the lowered limit, which the other messages of the load are below.
_LATER_SIZE: Final = 8_000
# By setting: the lowered value, and the one before.
_LOWERED: Final = {
    "maxMessageSize": ("4000", "4194304"),
    "timerMaxDelaySec": ("1", "259200"),
    "maxTopicNums": ("1", "100000"),
    "rejectTransactionMessage": ("true", "false"),
}
_NOT_FOLLOWED: Final = "the master's log is not followed"


def kill_master(cluster: FaultCluster) -> None:
    """Kill the master; the slave has all that was acknowledged."""
    cluster.master.kill()
    cluster.check()
    cluster.hold(0.0, 2.0)
    cluster.start_master()


def kill_master_without_reports(cluster: FaultCluster) -> None:
    """Kill a master that the reports of its slave no longer reach."""
    cluster.machines.drop(SLAVE, MASTER, 1.0)
    cluster.hold(0.2, 3.0)
    cluster.master.kill()
    cluster.check()
    cluster.machines.heal()
    cluster.start_master()


def restart_slave_of_a_frozen_master(cluster: FaultCluster) -> None:
    """Kill the slave of a frozen master and start it again: the master has its old connection for a while."""
    cluster.master.freeze()
    cluster.slave.kill()
    cluster.check()
    cluster.start_slave()
    cluster.hold()
    cluster.master.thaw()


def kill_slave(cluster: FaultCluster) -> None:
    """Kill the slave; the master acknowledges nothing until it is back."""
    cluster.slave.kill()
    cluster.check()
    cluster.hold(0.0, 2.0)
    cluster.check_copy(SLAVE)
    cluster.start_slave()


def kill_both(cluster: FaultCluster) -> None:
    """Kill master and slave at the same time."""
    first, second = _in_any_order(cluster, [cluster.master, cluster.slave])
    first.kill()
    second.kill()
    cluster.check()
    _start_both(cluster)


def stop_both(cluster: FaultCluster) -> None:
    """Stop both in order, in any order, and start them again."""
    for broker in _in_any_order(cluster, [cluster.master, cluster.slave]):
        assert broker.stop() == 0
    cluster.check()
    _start_both(cluster)


def _in_any_order(cluster: FaultCluster, brokers: list[ClockedBroker]) -> list[ClockedBroker]:
    cluster.random.shuffle(brokers)
    return brokers


def _start_both(cluster: FaultCluster) -> None:
    starts = [cluster.start_master, cluster.start_slave]
    cluster.random.shuffle(starts)
    for start in starts:
        start()


def freeze_master(cluster: FaultCluster) -> None:
    """Freeze the master."""
    _freeze(cluster, cluster.master)


def freeze_slave(cluster: FaultCluster) -> None:
    """Freeze the slave; what it has is in its files."""
    _freeze(cluster, cluster.slave)


def freeze_namesrv(cluster: FaultCluster) -> None:
    """Freeze the name server, which nobody needs for a while."""
    _freeze(cluster, cluster.namesrv)


def _freeze(cluster: FaultCluster, server: OurServer) -> None:
    server.freeze()
    is_long = cluster.random.random() < _LONG_FREEZE
    cluster.hold(*((15.0, 60.0) if is_long else (5.0, 8.0)))
    cluster.check()
    server.thaw()


def cut_to_slave(cluster: FaultCluster) -> None:
    """Lose all that the master sends to the slave."""
    _lose(cluster, (MASTER, SLAVE))


def cut_to_master(cluster: FaultCluster) -> None:
    """Lose all that the slave sends to the master: its reports."""
    _lose(cluster, (SLAVE, MASTER))


def cut_both_ways(cluster: FaultCluster) -> None:
    """Cut the link between master and slave."""
    _lose(cluster, (SLAVE, MASTER), (MASTER, SLAVE))


def lose_some(cluster: FaultCluster) -> None:
    """Lose a share of the packets between master and slave."""
    _lose(cluster, (SLAVE, MASTER), (MASTER, SLAVE), share=LOSS)


def lose_some_everywhere(cluster: FaultCluster) -> None:
    """Lose a share of the packets on each link of the master."""
    _lose(cluster, *_links_of(MASTER), share=LOSS)


def isolate_master(cluster: FaultCluster) -> None:
    """Cut the master off from all others."""
    _lose(cluster, *_links_of(MASTER))


def isolate_slave(cluster: FaultCluster) -> None:
    """Cut the slave off from all others."""
    _lose(cluster, *_links_of(SLAVE))


def _links_of(machine: str) -> list[tuple[str, str]]:
    others = [each for each in (CLIENTS, NAMESRV, MASTER, SLAVE) if each != machine]
    return [*((machine, other) for other in others), *((other, machine) for other in others)]


def _lose(cluster: FaultCluster, *links: tuple[str, str], share: float = 1.0) -> None:
    for source, destination in links:
        cluster.machines.drop(source, destination, share)
    cluster.hold(2.0, 6.0)
    cluster.check()
    cluster.machines.heal()


def fill_slave_disk(cluster: FaultCluster) -> None:
    """Fill the slave's disk: the master acknowledges what the slave could still write."""
    vacate = cluster.fill_slave_disk()
    cluster.hold(2.0, 4.0)
    cluster.check()
    vacate()


def kill_slave_with_full_disk(cluster: FaultCluster) -> None:
    """Kill a slave whose disk is full, and start it once there is room."""
    vacate = cluster.fill_slave_disk()
    cluster.hold()
    cluster.slave.kill()
    cluster.check()
    vacate()
    cluster.start_slave()


def fail_slave_syncs(cluster: FaultCluster) -> None:
    """Let each sync of the slave's disk fail: the master acknowledges nothing that only the slave's memory has."""
    # A slave that syncs before its report would hold it back in any case.
    cluster.slave.kill()
    cluster.start_slave(flushDiskType="ASYNC_FLUSH")
    cluster.wait_at_work()
    end = cluster.fail_slave_syncs()
    cluster.slave.wait_for("could not be synced")
    cluster.check_nothing_acknowledged()
    cluster.check()
    end()


def lower_limits(cluster: FaultCluster) -> None:
    """Lower the limits of sends while acknowledged messages wait: delayed, of the timer, and of a transaction."""
    make_topic(cluster.master.address, cluster.namesrv.address, LATER, 1)
    waiting = asyncio.run(_send_then_lower_limits(cluster))
    cluster.master.wait_until(
        lambda: asyncio.run(_arrived(cluster)) >= waiting, PROGRESS_LIMIT_S, "deliver what waited"
    )
    cluster.check()
    asyncio.run(_set_at_master(cluster, {name: before for name, (_, before) in _LOWERED.items()}))


async def _send_then_lower_limits(cluster: FaultCluster) -> set[bytes]:
    """Return the bodies that a consumer has to get."""
    # Random bytes: a body that compresses well would be below the limit.
    delayed, timer, transaction = (cluster.random.randbytes(_LATER_SIZE) for _ in range(3))

    async def commit(_: Message) -> LocalTransactionState:
        # Its half message is acknowledged, and the other two are.
        await _set_at_master(cluster, {name: lowered for name, (lowered, _) in _LOWERED.items()})
        return LocalTransactionState.COMMIT_MESSAGE

    def check(_: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    async with TransactionProducer("PG_Later", cluster.namesrv.address, check=check) as producer:
        for message in (Message(LATER, delayed, delay_time_level=2), Message(LATER, timer, delay_time_ms=5_000)):
            while (await producer.send(message)).send_status is not SendStatus.SEND_OK:
                continue
        await producer.send_in_transaction(Message(LATER, transaction), commit)
    return {delayed, timer, transaction}


async def _set_at_master(cluster: FaultCluster, settings: Mapping[str, str]) -> None:
    async with AdminClient(cluster.namesrv.address) as admin:
        await admin.update_broker_config(cluster.master.address, settings)


async def _arrived(cluster: FaultCluster) -> set[bytes]:
    """Return the bodies in the topic of messages for later."""
    async with PullConsumer("CG_Later", cluster.namesrv.address) as consumer:
        queue, offset, bodies = MessageQueue(LATER, "broker-a", 0), 0, set[bytes]()
        while (found := await consumer.pull(queue, offset, suspend_timeout_s=0.0)).messages:
            bodies |= {bytes(each.body) for each in found.messages}
            offset = found.next_begin_offset
        return bodies


def empty_master(cluster: FaultCluster) -> None:
    """Start the master without its store, by mistake, and give it a copy of the slave's."""
    journal = cluster.journal
    # More than an empty master gets meanwhile: what consumers then read is at offsets that they had before.
    while journal.got < _MESSAGES:
        cluster.wait_at_work()
    cluster.master.kill()
    cluster.check()
    acknowledged = len(journal.acknowledged)
    cluster.master_role.seen.rename(cluster.master_role.seen.with_name("lost"))
    logged = cluster.slave.text().count(_REMEDY)
    cluster.start_master()
    cluster.make_topic()
    wait_until(
        lambda: cluster.slave.text().count(_REMEDY) > logged,
        "the slave stops following",
    )
    cluster.hold()
    cluster.check_copy(SLAVE)
    assert len(journal.acknowledged) == acknowledged, "an empty master acknowledged messages"
    for broker in _in_any_order(cluster, [cluster.master, cluster.slave]):
        assert broker.stop() == 0
    # Consumers read what the empty master had at the offsets of other messages, and began there again.
    journal.read_on()
    journal.breaks.clear()
    cluster.restore_master()
    _start_both(cluster)
    cluster.wait_at_work()
    journal.breaks.clear()
    journal.steps_back.clear()


def set_clocks_apart(cluster: FaultCluster) -> None:
    """Set the clock of one broker an hour forward or back, and for a while at least, back again."""
    broker = cluster.random.choice([cluster.master, cluster.slave])
    hours = cluster.random.choice([HOUR_S, -HOUR_S])
    broker.set_clock(f"step {hours}")
    cluster.wait_at_work()
    if cluster.random.random() < 0.5:
        cluster.hold()
        broker.set_clock(f"step {-hours}")


def start_a_second_master(cluster: FaultCluster) -> None:
    """Start another master of the same name, which the name server rejects."""
    _start_rejected(cluster, {**cluster.master_role.settings, "inSyncReplicas": 1}, "give each broker its own")


def start_a_second_slave(cluster: FaultCluster) -> None:
    """Start another slave of the same id, which the name server rejects."""
    _start_rejected(cluster, SLAVE_ROLE, "give each broker its own")


def start_a_slave_of_another_cluster(cluster: FaultCluster) -> None:
    """Start a slave of the same name and another cluster, which the name server rejects."""
    settings = {**SLAVE_ROLE, "brokerId": 2, "brokerClusterName": "Other"}
    _start_rejected(cluster, settings, "broker-a of cluster Other")


def _start_rejected(cluster: FaultCluster, settings: dict[str, str | int], reason: str) -> None:
    spare = cluster.launch(cluster.spare_role(**settings))
    spare.wait_for(reason)
    cluster.wait_at_work()
    assert spare.stop() == 0
    has_records = any(any(path.read_bytes()[:8]) for path in (spare.store / "commitlog").glob("0*"))
    assert not has_records, "a broker that the name server rejected stored messages"


def follow_nobody(cluster: FaultCluster) -> None:
    """Start the slave with a haMasterAddress that nobody listens on."""
    cluster.slave.kill()
    cluster.start_slave(haMasterAddress=f"127.0.0.1:{free_ports()}")
    cluster.slave.wait_for(_NOT_FOLLOWED)
    cluster.hold()
    cluster.check()
    assert cluster.slave.stop() == 0
    cluster.start_slave()


def kill_namesrv(cluster: FaultCluster) -> None:
    """Kill the name server, which nobody needs for a while."""
    cluster.namesrv.kill()
    cluster.hold(2.0, 4.0)
    cluster.check()
    cluster.start_namesrv()
    # Else one that starts now may take the name of a broker that is not registered yet.
    for broker in (cluster.master, cluster.slave):
        wait_serving(broker, cluster.namesrv.address)


ON_ONE_LINK: Final[tuple[Fault, ...]] = (
    kill_master, kill_master_without_reports, kill_slave, restart_slave_of_a_frozen_master, kill_both, stop_both,
    freeze_master, freeze_slave, freeze_namesrv, cut_to_slave, cut_to_master, cut_both_ways, lose_some, empty_master,
    set_clocks_apart, start_a_second_master, start_a_second_slave, start_a_slave_of_another_cluster, follow_nobody,
    kill_namesrv, fail_slave_syncs, lower_limits,
)  # fmt: skip
ON_ALL_LINKS: Final[tuple[Fault, ...]] = (lose_some_everywhere, isolate_master, isolate_slave)
ON_A_SMALL_DISK: Final[tuple[Fault, ...]] = (fill_slave_disk, kill_slave_with_full_disk)
FAULTS: Final = (*ON_ONE_LINK, *ON_ALL_LINKS, *ON_A_SMALL_DISK)
FAULTS_A_RUN: Final = 3


def plan(seed: int, possible: tuple[Fault, ...] = FAULTS) -> list[Fault]:
    """Return the faults of a run; the first is each kind in turn."""
    chance = random.Random(seed)
    return [possible[seed % len(possible)], *chance.choices(possible, k=FAULTS_A_RUN - 1)]
