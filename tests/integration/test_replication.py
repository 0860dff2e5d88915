"""A master and its slave as processes under load, with faults: they lose no message that was acknowledged."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import cluster_faults
from tests.support.fault_cluster import FaultCluster
from tests.support.machines import SLAVE, LoopbackMachines

SETTINGS: dict[str, str | int] = {"haHousekeepingInterval": 2_000, "haSendHeartbeatInterval": 500}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FaultCluster]:
    """A master and a slave on the loopback interface, under the load of our client."""
    with ExitStack() as stack:
        machines = LoopbackMachines(tmp_path)
        stack.callback(machines.close)
        made = FaultCluster(machines, tmp_path, None, 1, SETTINGS)
        stack.callback(made.close)
        made.start_servers()
        made.follow_python()
        yield made


@pytest.mark.proves("A log that copies another's", "master and slave killed while messages are sent")
@pytest.mark.timeout(300)
@pytest.mark.long
def test_no_message_that_both_have_is_lost_by_the_kill_of_either(cluster: FaultCluster):
    cluster.slave.kill()
    cluster.check()
    cluster.hold(1.0, 1.0)
    cluster.check_copy(SLAVE)
    cluster.start_slave()
    cluster.wait_at_work()

    cluster_faults.kill_master_without_reports(cluster)
    cluster.wait_at_work()
    cluster.slave.set_clock("step 3600")

    cluster_faults.kill_both(cluster)
    cluster.wait_at_work()
    print(cluster.finish())


@pytest.mark.proves("A log that copies another's", "a master that lost its store")
@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_master_without_its_store_acknowledges_nothing_and_is_restored(cluster: FaultCluster):
    cluster_faults.empty_master(cluster)
    print(cluster.finish())


@pytest.mark.timeout(300)
@pytest.mark.long
def test_nothing_is_acknowledged_while_the_syncs_of_the_slave_fail(cluster: FaultCluster):
    cluster_faults.fail_slave_syncs(cluster)
    cluster.wait_at_work()
    print(cluster.finish())


@pytest.mark.timeout(300)
@pytest.mark.long
def test_what_waits_is_delivered_though_the_limits_of_sends_are_lowered(cluster: FaultCluster):
    cluster_faults.lower_limits(cluster)
    cluster.wait_at_work()
    print(cluster.finish())
