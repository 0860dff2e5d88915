"""The master of a pair is killed under an orderly Java consumer, which goes on at the slave that acts as master."""

import asyncio
import time
from functools import partial

import pytest

from tests.interop.test_java_failover import MESSAGES, QUEUES, consumed, stored, wait_for
from tests.support.java import Java
from tests.support.java_lines import got
from tests.support.java_process import JavaProcess
from tests.support.our_servers import OurServers, make_topic
from tests.support.waiting import until

pytestmark = pytest.mark.java


def has_all(consumer: JavaProcess) -> bool:
    return len({each.n for each in got(consumer.text())}) == MESSAGES


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_orderly_consumers_go_on_at_the_acting_master_and_nothing_comes_again(our_servers: OurServers, java: Java):
    namesrv = our_servers.namesrv(0, supportActingMaster="true", notifyMinBrokerIdChanged="true")
    acting: dict[str, str | int] = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
    store = our_servers.home / "master"
    master = our_servers.launch_broker(namesrv.address, store, acting)
    master.wait_for("boot success")
    slave = our_servers.launch_broker(namesrv.address, None, {**acting, "brokerRole": "SLAVE", "brokerId": 1})
    slave.wait_for("boot success")
    make_topic(master.address, namesrv.address, "T", QUEUES)
    java.run("Produce", f"namesrv={namesrv.address}", "topic=T", f"plan=batch:{MESSAGES}:2")
    wait_for(lambda: stored(slave), MESSAGES)

    def orderly(group: str) -> JavaProcess:
        return java.start(
            *("Push", f"namesrv={namesrv.address}", "topic=T", f"group={group}", "listener=orderly"),
            *("persist=500", "pollNameServer=1000"),
        )

    first = orderly("G")
    asyncio.run(until(lambda: len(got(first.text())) > MESSAGES // 16))
    master.kill()
    killed = time.monotonic()
    slave.wait_for("this slave acts as master")
    # A new group needs the locks of all queues, which clients ask of broker 0.
    second = orderly("H")
    for consumer in (first, second):
        asyncio.run(until(partial(has_all, consumer)))
    took = time.monotonic() - killed
    wait_for(lambda: consumed(slave), MESSAGES)
    for consumer in (first, second):
        consumer.kill()
        for queue_id in range(QUEUES):
            offsets = [each.queue_offset for each in got(consumer.text()) if each.queue_id == queue_id]
            assert offsets == sorted(offsets), "no queue goes back"

    master = our_servers.launch_broker(namesrv.address, store, acting)
    master.wait_for("boot success")
    assert asyncio.run(consumed(master)) == MESSAGES, "it has the progress before it is registered"
    slave.wait_for("acts as master no longer")
    print(f"all {MESSAGES} messages came to both groups {took:.1f} s after the master was killed")
