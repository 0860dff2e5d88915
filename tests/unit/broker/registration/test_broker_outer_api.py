import asyncio
import socket
import sys
import zlib
from contextlib import asynccontextmanager

import pytest

from rocketbroker.broker.registration.broker_outer_api import BrokerOuterApi
from rocketbroker.broker.registration.broker_registration import BrokerRegistration
from rocketbroker.broker.registration.namesrv_link import Master, MasterAddress
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.fake_namesrv import FakeNamesrv
from tests.support.fakes import FakeClock
from tests.support.ports import free_ports
from tests.support.running import running
from tests.support.waiting import until


@pytest.fixture
async def namesrv():
    async with running(FakeNamesrv()) as server:
        yield server


@pytest.fixture
async def other_namesrv():
    async with running(FakeNamesrv()) as server:
        yield server


class Broker:
    """The parts of a broker that name servers hear of."""

    def __init__(self, tmp_path, **settings):
        self.config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", broker_ip2="127.0.0.2", **settings)
        store_config = MessageStoreConfig(store_path_root_dir=str(tmp_path), ha_listen_port=10912)
        self.topics = TopicConfigManager(tmp_path / "topics.json", self.config, FakeClock())
        self.client = RemotingClient(connect_timeout_s=60)
        self.registration = BrokerRegistration(self.config, store_config, self.topics)
        self.master = MasterAddress(lambda: self.registration.broker_addr)
        self.api = BrokerOuterApi(self.config, self.client, self.topics, self.registration, self.master)


@asynccontextmanager
async def registering(tmp_path, **settings):
    broker = Broker(tmp_path, **settings)
    try:
        await broker.api.start()
        yield broker
    finally:
        await broker.api.stop()
        await broker.client.stop()


async def test_registers_at_every_name_server_and_unregisters(tmp_path, namesrv, other_namesrv):
    async with registering(tmp_path, namesrv_addr=f"{namesrv.address};{other_namesrv.address}") as broker:
        assert broker.api.registered_at() == [namesrv.address, other_namesrv.address]
        for server in (namesrv, other_namesrv):
            (header, body) = server.registrations[0]
            assert len(server.registrations) == 1
            assert header.broker_addr == "127.0.0.1:10911"
            assert header.ha_server_addr == "127.0.0.2:10912"
            assert (header.cluster_name, header.broker_name, header.broker_id) == ("DefaultCluster", "broker-a", 0)
            assert header.body_crc32 == zlib.crc32(body) & 0x7FFFFFFF
            assert server.topics() == broker.topics.topics
    assert [header.broker_addr for header in namesrv.unregistrations] == ["127.0.0.1:10911"]
    assert len(other_namesrv.unregistrations) == 1


async def test_topic_change_registers_only_what_changed(tmp_path, namesrv):
    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        for number in range(50):
            broker.topics.create_in_send_message(f"T{number}", "TBW102", "127.0.0.1:1", 4, 0)
        await broker.api.settled()
        increments = [namesrv.topics(number) for number in range(1, len(namesrv.registrations))]
        assert len(increments) <= 2
        assert {name for topics in increments for name in topics} == {f"T{number}" for number in range(50)}


async def test_each_period_registers_everything_again(tmp_path, namesrv):
    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        broker.topics.update(TopicConfig("T"))
        broker.api.register_all()
        await broker.api.settled()
        # The whole registration covers the increment that was due as well.
        assert len(namesrv.registrations) == 2
        assert namesrv.topics() == broker.topics.topics


async def test_without_force_only_an_outdated_name_server_receives_a_registration(tmp_path, namesrv):
    async with registering(tmp_path, namesrv_addr=namesrv.address, force_register=False) as broker:
        assert len(namesrv.registrations) == 1
        broker.api.register_all()
        await broker.api.settled()
        assert (namesrv.data_version_queries, len(namesrv.registrations)) == (1, 1)
        namesrv.changed = True
        broker.api.register_all()
        await broker.api.settled()
        assert (namesrv.data_version_queries, len(namesrv.registrations)) == (2, 2)


async def test_broker_permission_narrows_the_topics(tmp_path, namesrv):
    async with registering(tmp_path, namesrv_addr=namesrv.address, broker_permission=4) as broker:
        assert namesrv.topics()["TBW102"].perm == 4
        assert broker.topics.select("TBW102").perm == 7


async def test_compressed_registration(tmp_path, namesrv):
    async with registering(tmp_path, namesrv_addr=namesrv.address, compressed_register=True) as broker:
        header, body = namesrv.registrations[0]
        assert header.compressed
        assert header.body_crc32 == zlib.crc32(body) & 0x7FFFFFFF
        assert namesrv.topics().keys() == broker.topics.topics.keys()


async def test_order_topics_of_the_name_server(tmp_path, namesrv):
    namesrv.order_topics = {"SELF_TEST_TOPIC": "broker-a:1", "Unknown": "broker-a:1"}
    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        assert broker.topics.select("SELF_TEST_TOPIC").order
        assert broker.topics.select("Unknown") is None


async def test_one_dead_name_server_delays_no_other_and_is_logged_once(tmp_path, namesrv, caplog):
    dead = f"127.0.0.1:{free_ports()}"
    async with registering(tmp_path, namesrv_addr=f"{dead};{namesrv.address}") as broker:
        assert broker.api.registered_at() == [namesrv.address]
        for _ in range(3):
            broker.api.register_all()
            await broker.api.settled()
        assert caplog.text.count(f"not registered at name server {dead}") == 1


async def test_name_server_that_comes_back(tmp_path, caplog):
    caplog.set_level("INFO")
    port = free_ports()
    async with registering(tmp_path, namesrv_addr=f"127.0.0.1:{port}") as broker:
        assert broker.api.registered_at() == []
        server = FakeNamesrv()
        server.server.port = port
        async with running(server):
            broker.api.register_all()
            await broker.api.settled()
            assert broker.api.registered_at() == [server.address]
            assert f"registered at name server 127.0.0.1:{port}" in caplog.messages


async def test_refusing_name_server(tmp_path, namesrv, caplog):
    namesrv.code, namesrv.remark = 1, "crc32 not match"
    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        assert broker.api.registered_at() == []
        assert "it answers 1 crc32 not match" in caplog.text


async def test_without_name_servers(tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with registering(tmp_path, namesrv_addr="") as broker:
        assert broker.api.name_servers() == []
        assert "namesrvAddr" in caplog.text


async def test_an_address_server_without_its_extra_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    broker = Broker(tmp_path, fetch_namesrv_addr_by_address_server=True)
    try:
        with pytest.raises(ConfigError, match=r"fetchNamesrvAddrByAddressServer=true needs .*'rocketbroker\[http\]'"):
            await broker.api.start()
    finally:
        await broker.api.stop()
        await broker.client.stop()


async def test_name_servers_are_the_addresses_that_the_dns_has(tmp_path, namesrv, other_namesrv, monkeypatch, caplog):
    known, lookup = {"namesrv.test": [namesrv.address]}, socket.getaddrinfo

    def look_up(host, port, *rest, **further):
        if not str(host).endswith(".test"):
            return lookup(host, port, *rest, **further)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        pairs = (address.rsplit(":", 1) for address in known[host])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, int(number))) for ip, number in pairs]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    settings = {
        "namesrv_addr": "namesrv.test:9876;gone.test:9876",
        "fetch_name_srv_addr_by_dns_lookup": True,
        "update_name_server_addr_period": 1000,
        "fetch_namesrv_addr_interval": 100,
    }
    async with registering(tmp_path, **settings) as broker, asyncio.timeout(60):
        await until(lambda: namesrv.registrations)
        assert await broker.api.find_name_servers() == [namesrv.address]
        known["namesrv.test"] = [other_namesrv.address]
        await until(lambda: broker.api.name_servers() == [other_namesrv.address])
        known.clear()
        await broker.api._name_lookup.addresses()
        await until(lambda: other_namesrv.registrations)
        assert broker.api.name_servers() == [other_namesrv.address], "a failed lookup changes nothing"
    failed = [record.message for record in caplog.records if "cannot be looked up" in record.message]
    assert len(failed) == len(set(failed)) == 2


async def test_address_server(tmp_path, namesrv, other_namesrv):
    from aiohttp import web

    answers = [f"{namesrv.address};", f"{other_namesrv.address}"]

    async def nsaddr(_request):
        return web.Response(text=answers[0] if len(answers) == 1 else answers.pop(0))

    app = web.Application()
    app.router.add_get("/rocketmq/nsaddr", nsaddr)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    settings = {
        "fetch_namesrv_addr_by_address_server": True,
        "rmq_address_server_domain": f"127.0.0.1:{port}",
        "update_name_server_addr_period": 1000,
    }
    try:
        async with registering(tmp_path, **settings) as broker, asyncio.timeout(60):
            while not namesrv.registrations or not other_namesrv.registrations:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await broker.api.settled()
            assert broker.api.name_servers() == [other_namesrv.address]
            assert namesrv.unregistrations == []
    finally:
        await runner.cleanup()


async def test_a_slave_gets_its_master_from_the_answer(tmp_path, namesrv):
    namesrv.master = {"masterAddr": "127.0.0.1:20911", "haServerAddr": "127.0.0.1:20912"}

    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        assert broker.master.master == Master("127.0.0.1:20911", "127.0.0.1:20912")

        namesrv.master = {}
        broker.api.register_all()
        await broker.api.settled()
        assert broker.master.master == Master()


async def test_a_slave_follows_its_master_while_all_name_servers_are_dead(tmp_path, namesrv):
    namesrv.master = {"masterAddr": "127.0.0.1:20911", "haServerAddr": "127.0.0.1:20912"}

    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        await namesrv.stop()
        broker.api.register_all()
        await broker.api.settled()

        assert broker.api.registered_at() == []
        assert broker.master.master.address == "127.0.0.1:20911"


async def test_a_name_server_that_dies_no_longer_names_a_master(tmp_path, namesrv, other_namesrv):
    namesrv.master = {"masterAddr": "127.0.0.1:20911", "haServerAddr": "127.0.0.1:20912"}

    async with registering(tmp_path, namesrv_addr=f"{namesrv.address};{other_namesrv.address}") as broker:
        assert broker.master.master.address == "127.0.0.1:20911"
        await namesrv.stop()
        broker.api.register_all()
        await broker.api.settled()

        assert broker.master.master == Master()


async def test_an_answer_that_is_no_table_is_a_failed_registration(tmp_path, namesrv, caplog):
    namesrv.body = b"\x00garbage"

    async with registering(tmp_path, namesrv_addr=namesrv.address) as broker:
        assert broker.api.registered_at() == []
    assert f"not registered at name server {namesrv.address}" in caplog.text
