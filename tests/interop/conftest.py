"""Our servers as processes; what they printed is shown where a test fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.other_machine import OtherMachine
from tests.support.our_servers import Cluster, OurServers
from tests.support.ports import LOOPBACK


@pytest.fixture
def our_servers(tmp_path: Path, clients_machine: OtherMachine | None) -> Iterator[OurServers]:
    """Starts our servers for one test; what still runs is ended with it."""
    home = tmp_path / "ours"
    home.mkdir()
    servers = OurServers(home, _host(clients_machine))
    yield servers
    servers.close()


def _host(clients_machine: OtherMachine | None) -> str:
    return clients_machine.servers_host if clients_machine else LOOPBACK


@pytest.fixture
def cluster(our_servers: OurServers) -> Cluster:
    """Our name server with our broker registered at it."""
    namesrv = our_servers.namesrv()
    return Cluster(namesrv, our_servers.broker(namesrv.address))


@pytest.fixture(scope="module")
def shared_servers(
    tmp_path_factory: pytest.TempPathFactory, clients_machine: OtherMachine | None
) -> Iterator[OurServers]:
    """Our servers for the tests of a file."""
    servers = OurServers(tmp_path_factory.mktemp("ours"), _host(clients_machine))
    yield servers
    servers.close()


@pytest.fixture(scope="module")
def shared_cluster(shared_servers: OurServers) -> Cluster:
    """A cluster for the tests of a file that each have topics and groups of their own, and kill and set nothing.

    Starting one takes as much processor time as three JVMs of clients.
    """
    namesrv = shared_servers.namesrv()
    return Cluster(namesrv, shared_servers.broker(namesrv.address))
