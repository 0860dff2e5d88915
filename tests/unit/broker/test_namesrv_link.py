import asyncio

import pytest

from rocketbroker.broker.broker_registration import BrokerRegistration
from rocketbroker.broker.namesrv_link import NamesrvLink
from rocketbroker.broker.topic_config_manager import TopicChange, TopicConfigManager
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.fake_namesrv import FakeNamesrv
from tests.support.fakes import FakeClock

CONFIG = BrokerConfig(
    broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", register_broker_timeout_mills=200
)


@pytest.fixture
async def client():
    found = RemotingClient(connect_timeout_s=2.0)
    yield found
    await found.stop()


def make(tmp_path, client, address):
    topics = TopicConfigManager(tmp_path / "topics.json", CONFIG, FakeClock())
    registration = BrokerRegistration(CONFIG, MessageStoreConfig(), topics)
    return NamesrvLink(address, client, CONFIG, registration, lambda _topics: None)


def changed(*topics, is_deletion=False):
    return TopicChange(list(topics), DataVersion(5, len(topics), 0), is_deletion)


async def test_nothing_is_sent_before_it_is_asked_for(tmp_path, client):
    namesrv = FakeNamesrv()
    await namesrv.start()
    link = make(tmp_path, client, namesrv.address)
    link.start()
    await asyncio.sleep(0.01)
    await link.stop(unregister=True)
    assert (namesrv.registrations, namesrv.unregistrations) == ([], [])
    await namesrv.stop()


async def test_whole_and_increments_arrive_in_order(tmp_path, client):
    namesrv = FakeNamesrv()
    await namesrv.start()
    link = make(tmp_path, client, namesrv.address)
    link.start()
    link.register_whole()
    await link.settled()
    link.register_change(changed(TopicConfig("A")))
    link.register_change(changed(TopicConfig("B"), TopicConfig("A", perm=4)))
    await link.settled()
    assert namesrv.topics() == {"A": TopicConfig("A", perm=4), "B": TopicConfig("B")}
    await link.stop(unregister=False)
    assert namesrv.unregistrations == []
    await namesrv.stop()


async def check_not_registered(tmp_path, client, serve):
    """A link to a name server that behaves so gives up."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    link = make(tmp_path, client, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    link.start()
    link.register_whole()
    async with asyncio.timeout(5):
        await link.settled()
    assert not link.is_registered
    await link.stop(unregister=True)
    server.close()


async def test_name_server_that_never_answers_times_out(tmp_path, client, caplog):
    async def swallow(reader, writer):
        await reader.read()
        writer.close()

    await check_not_registered(tmp_path, client, swallow)
    assert "not registered at name server" in caplog.text


async def test_answer_that_is_no_frame(tmp_path, client):
    async def babble(reader, writer):
        await reader.read(1)
        writer.write(b"\xff" * 64)
        await writer.drain()
        await reader.read()
        writer.close()

    await check_not_registered(tmp_path, client, babble)
