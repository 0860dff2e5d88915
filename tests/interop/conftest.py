"""Our servers as processes; what they printed is shown where a test fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.our_servers import Cluster, OurServers


@pytest.fixture
def our_servers(tmp_path: Path) -> Iterator[OurServers]:
    """Starts our servers for one test; what still runs is ended with it."""
    home = tmp_path / "ours"
    home.mkdir()
    servers = OurServers(home)
    yield servers
    servers.close()


@pytest.fixture
def cluster(our_servers: OurServers) -> Cluster:
    """Our name server with our broker registered at it."""
    namesrv = our_servers.namesrv()
    return Cluster(namesrv, our_servers.broker(namesrv.address))
