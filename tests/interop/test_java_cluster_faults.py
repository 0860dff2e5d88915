"""A master and its slave under Java producers and a consumer, with random faults: the history stays whole."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster_faults import FAULTS, ON_A_SMALL_DISK, ON_ALL_LINKS, plan
from tests.support.fault_cluster import FaultCluster, small_disk
from tests.support.java import Java
from tests.support.machines import make_machines

pytestmark = [
    pytest.mark.java,
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.proves("A log that copies another's", "random faults of servers, links, disk and clocks"),
]

RUNS = 200
# Time after which a silent connection of a slave is closed: within a fault, and after it.
SHORT: dict[str, str | int] = {"haHousekeepingInterval": 3_000, "haSendHeartbeatInterval": 1_000}
LONG: dict[str, str | int] = {}


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("seed", range(RUNS))
def test_no_acknowledged_message_is_lost(seed: int, tmp_path: Path, java: Java, resources: ExitStack):
    home = tmp_path / "cluster"
    home.mkdir()
    machines = make_machines(home)
    resources.callback(machines.close)
    if (disk := small_disk()) is not None:
        resources.callback(disk.close)
    excluded = (*(() if disk else ON_A_SMALL_DISK), *(() if machines.has_all_links else ON_ALL_LINKS))
    faults = plan(seed, tuple(each for each in FAULTS if each not in excluded))
    print(f"seed {seed}: {', '.join(fault.__name__ for fault in faults)}")
    cluster = FaultCluster(machines, home, disk, seed, SHORT if seed % 2 else LONG)
    resources.callback(cluster.close)
    cluster.start_servers()
    cluster.follow_java(java)
    for fault in faults:
        fault(cluster)
        cluster.wait_at_work()
    print(f"seed {seed}: {cluster.finish()}")
