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
    servers = OurServers(home, clients_machine.servers_host if clients_machine else LOOPBACK)
    yield servers
    servers.close()


@pytest.fixture
def cluster(our_servers: OurServers) -> Cluster:
    """Our name server with our broker registered at it."""
    namesrv = our_servers.namesrv()
    return Cluster(namesrv, our_servers.broker(namesrv.address))
