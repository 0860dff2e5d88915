"""Stores and Spark sessions for tests of jobs; our servers as processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketbroker.auth import failed_attempts
from rocketbroker.client import AdminClient
from rocketbroker.testing import RocketMQServer
from tests.support import golden_store
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.shared_session import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(shared_session: SharedSession) -> "SparkSession":
    """The session for few rows that all tests of this process share."""
    return shared_session.get()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of Apache RocketMQ."""
    return golden_store.unpack("clean", tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def prompt_refusals() -> Iterator[None]:
    """Let answers to wrong credentials wait for 10 ms at most in servers of this process, not for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failed_attempts, "MAX_DELAY_S", 0.01)
        yield


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[OurServers]:
    """Our servers for one test, with their files in its folder; those still running are stopped after it."""
    started = OurServers(tmp_path)
    yield started
    started.close()


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    """A name server and a broker in this process."""
    async with RocketMQServer() as server:
        yield server


@pytest.fixture
async def admin(mq: RocketMQServer) -> AsyncIterator[AdminClient]:
    """An AdminClient of ``mq``."""
    async with AdminClient(mq.namesrv_addr) as client:
        yield client


@pytest.fixture
def broker(servers: OurServers) -> OurServer:
    """A broker without a name server; the first send to a topic creates it."""
    started = servers.launch_broker("", None, {"autoCreateTopicEnable": "true"})
    started.wait_for(BOOTED, BOOT_LIMIT)
    return started
