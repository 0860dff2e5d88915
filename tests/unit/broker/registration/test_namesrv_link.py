import asyncio
from contextlib import asynccontextmanager

import pytest

from rocketbroker.broker.registration import namesrv_link
from rocketbroker.broker.registration.broker_registration import BrokerRegistration
from rocketbroker.broker.registration.namesrv_link import MOST_SINGLE, Master, MasterAddress, NamesrvLink, TopAddressing
from rocketbroker.broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import QueueData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common import lifecycle
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.fake_namesrv import FakeNamesrv
from tests.support.fakes import FakeClock
from tests.support.running import running, stopping
from tests.support.waiting import turns, until


def addressing_of(domain):
    return TopAddressing(BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", rmq_address_server_domain=domain))


def test_url():
    assert addressing_of("ns.example").url == "http://ns.example:8080/rocketmq/nsaddr"
    assert addressing_of("ns.example:80").url == "http://ns.example:80/rocketmq/nsaddr"


async def test_failure_is_logged_once(caplog):
    addressing = addressing_of("127.0.0.1:1")
    assert await addressing.fetch() is None
    assert await addressing.fetch() is None
    assert caplog.text.count("address server http://127.0.0.1:1/rocketmq/nsaddr") == 1


CONFIG = BrokerConfig(
    broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", register_broker_timeout_mills=60_000
)
IMPATIENT = {"register_broker_timeout_mills": 200}


@pytest.fixture
async def client():
    async with stopping(RemotingClient(connect_timeout_s=60)) as found:
        yield found


def link_of(tmp_path, client, address, **settings):
    config = CONFIG.model_copy(update=settings)
    topics = TopicConfigManager(tmp_path / "topics.json", config, FakeClock())
    registration = BrokerRegistration(config, MessageStoreConfig(), topics)
    return NamesrvLink(address, client, config, registration, lambda _address, _answer: None)


@pytest.fixture
async def namesrv():
    async with running(FakeNamesrv()) as server:
        yield server


@asynccontextmanager
async def started(link):
    """A link at work."""
    link.start()
    try:
        yield link
    finally:
        await link.stop(unregister=False)


@asynccontextmanager
async def registered(tmp_path, client, namesrv, **settings):
    """A link that has registered all topics."""
    async with started(link_of(tmp_path, client, namesrv.address, **settings)) as link:
        await link.register_whole()
        yield link


def changed(*topics, is_deletion=False):
    return TopicChange(list(topics), DataVersion(5, len(topics), 0), is_deletion)


async def test_nothing_is_sent_before_it_is_asked_for(tmp_path, client, namesrv):
    link = link_of(tmp_path, client, namesrv.address)
    link.start()
    await turns()
    await link.stop(unregister=True)
    assert (namesrv.registrations, namesrv.unregistrations) == ([], [])


async def test_whole_and_increments_arrive_in_order(tmp_path, client, namesrv):
    async with started(link_of(tmp_path, client, namesrv.address)) as link:
        link.register_whole()
        await link.settled()
        link.register_change(changed(TopicConfig("A")))
        link.register_change(changed(TopicConfig("B"), TopicConfig("A", perm=4)))
        await link.settled()
        assert namesrv.topics() == {"A": TopicConfig("A", perm=4), "B": TopicConfig("B")}
    assert namesrv.unregistrations == []


async def check_not_registered(tmp_path, client, serve):
    """A link to a name server that behaves so gives up."""
    async with linked_to(serve, tmp_path, client) as link:
        link.register_whole()
        async with asyncio.timeout(60):
            await link.settled()
        assert not link.is_registered
        await link.stop(unregister=True)


@asynccontextmanager
async def linked_to(serve, tmp_path, client):
    """An impatient link to a server that behaves so."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with started(link_of(tmp_path, client, address, **IMPATIENT)) as link:
            yield link
    finally:
        server.close()


async def test_name_server_that_never_answers_times_out(tmp_path, client, caplog):
    async def swallow(reader, writer):
        await reader.read()
        writer.close()

    await check_not_registered(tmp_path, client, swallow)
    assert "not registered at name server" in caplog.text


async def test_a_registration_that_failed_is_repeated_without_being_asked_for(tmp_path, client, namesrv, monkeypatch):
    monkeypatch.setattr(namesrv_link, "RETRY_S", 0.02)
    namesrv.code = 1
    async with registered(tmp_path, client, namesrv) as link:
        assert not link.is_registered

        namesrv.code = 0

        await until(lambda: link.is_registered)


async def test_answer_that_is_no_frame(tmp_path, client):
    async def babble(reader, writer):
        await reader.read(1)
        writer.write(b"\xff" * 64)
        await writer.drain()
        await reader.read()
        writer.close()

    await check_not_registered(tmp_path, client, babble)


async def test_a_change_is_done_when_the_name_server_has_answered(tmp_path, client, namesrv):
    async with registered(tmp_path, client, namesrv) as link:
        assert len(namesrv.registrations) == 1
        await link.register_change(changed(TopicConfig("A")))
        assert namesrv.topics() == {"A": TopicConfig("A")}


async def test_a_deletion_registers_all_topics(tmp_path, client, namesrv):
    async with registered(tmp_path, client, namesrv) as link:
        await link.register_change(changed(is_deletion=True))
        assert namesrv.topics().keys() == namesrv.topics(0).keys()


async def test_a_name_server_that_does_not_answer_delays_one_change_and_no_other(tmp_path, client):
    async def swallow(reader, writer):
        await reader.read()
        writer.close()

    async with linked_to(swallow, tmp_path, client) as link:
        first = link.register_change(changed(TopicConfig("A")))
        assert not first.done()
        async with asyncio.timeout(60):
            await first
        async with asyncio.timeout(60):
            await link.settled()
        assert link.register_change(changed(TopicConfig("B"))).done(), "it is known to be dead"


async def test_a_stop_leaves_nobody_waiting(tmp_path, client):
    link = link_of(tmp_path, client, "127.0.0.1:1")
    waiting = link.register_whole()
    await link.stop(unregister=False)
    await waiting


async def test_what_failed_is_made_up_for_by_all_topics(tmp_path, client, namesrv):
    async with registered(tmp_path, client, namesrv, force_register=False) as link:
        namesrv.code, namesrv.remark = 1, "busy"
        await link.register_change(changed(TopicConfig("A")))
        assert not link.is_registered
        namesrv.code = 0
        await link.register_change(changed(TopicConfig("B")))
        await link.settled()
        assert link.is_registered
        assert len(namesrv.topics()) > 2, "B alone would leave A out for good"


async def test_over_a_new_connection_all_topics_are_registered_first(tmp_path, client, namesrv):
    """A name server forgets the broker when the connection closes."""
    async with registered(tmp_path, client, namesrv) as link:
        client.close_address(namesrv.address)
        await link.register_change(changed(TopicConfig("A")))
        assert len(namesrv.topics()) > 1


async def test_single_topics(tmp_path, client, namesrv):
    async with registered(tmp_path, client, namesrv, enable_single_topic_register=True) as link:
        await link.register_change(changed(TopicConfig("A", 3, 2), TopicConfig("B")))
        assert namesrv.single == {"A": [QueueData("b", 3, 2, 6)], "B": [QueueData("b", 16, 16, 6)]}
        assert len(namesrv.registrations) == 1
        await link.register_change(changed(*(TopicConfig(f"T{number}") for number in range(MOST_SINGLE + 1))))
        assert (len(namesrv.single), len(namesrv.registrations)) == (2, 2)


async def test_an_error_that_nobody_foresaw_is_made_up_for(tmp_path, client, namesrv, caplog, monkeypatch):
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.0)
    async with registered(tmp_path, client, namesrv) as link:
        monkeypatch.setattr(link._registration, "increment", lambda _change: 1 / 0)
        await link.register_change(changed(TopicConfig("A")))
        await link.register_change(changed(TopicConfig("B")))
        assert len(namesrv.topics()) > 1, "all of them"
    assert "division by zero" in caplog.text


async def test_a_second_broker_of_the_same_name_logs_an_error_with_the_reason(tmp_path, client, namesrv, caplog):
    remark = "broker b:0 is held by 10.0.0.7:10911"
    async with registered(tmp_path, client, namesrv) as link:
        namesrv.code, namesrv.remark = 1, remark
        for _ in range(3):
            await link.register_whole()
            await link.settled()
        told = [record for record in caplog.records if remark in record.getMessage()]
        assert [record.levelname for record in told] == ["ERROR"]
        assert not link.is_registered
        namesrv.code = 0
        await link.register_whole()
        await link.settled()
        assert link.is_registered, "the other one is gone"


async def test_a_broker_registers_again_when_its_link_is_lost_and_found(tmp_path, client, monkeypatch):
    monkeypatch.setattr(namesrv_link, "CONNECT_RETRY_S", 0.02)
    async with running(FakeNamesrv()) as namesrv:
        port = int(namesrv.address.rpartition(":")[2])
        link = link_of(tmp_path, client, namesrv.address)
        link.start()
        await link.register_whole()
    try:
        await until(lambda: not link.is_registered)
        async with running(FakeNamesrv(port=port)) as restarted:
            await until(lambda: restarted.registrations)
            await until(lambda: link.is_registered)
            await link.stop(unregister=False)
            await turns()
            assert len(restarted.registrations) == 1
    finally:
        await link.stop(unregister=False)


A = Master("10.0.0.1:10911", "10.0.0.1:10912")
B = Master("10.0.0.2:10911", "10.0.0.2:10912")


def made():
    """Return an address of a slave, and the list of masters that its listener gets."""
    address = MasterAddress(lambda: "10.0.0.9:10911")
    heard: list[Master] = []
    address.on_change(heard.append)
    return address, heard


def test_listeners_hear_of_another_master_once():
    address, heard = made()

    address.registered("ns1", A)
    address.registered("ns2", A)
    address.registered("ns1", A)
    assert (heard, address.master, address.answers) == ([A], A, True)

    address.registered("ns1", Master())
    assert address.master == A, "one name server still has it"
    address.registered("ns2", Master())
    assert (heard, address.master, address.answers) == ([A, Master()], Master(), False)


def test_the_followed_master_stays_while_a_name_server_has_it(caplog):
    address, heard = made()

    address.registered("ns1", A)
    address.registered("ns2", B)

    assert heard == [A]
    assert "the name servers have different masters for this slave: 10.0.0.1:10911 at ns1, 10.0.0.2:10911 at ns2" in (
        caplog.text
    )
    address.registered("ns1", B)
    assert heard == [A, B]


def test_a_master_whose_ha_address_moved_is_another_one():
    address, heard = made()
    moved = A._replace(ha_address="10.0.0.1:20912")

    address.registered("ns1", A)
    address.registered("ns1", moved)

    assert heard == [A, moved]


def test_the_last_name_server_keeps_its_answer_when_it_is_lost():
    address, heard = made()

    address.registered("ns1", A)
    address.lost("ns1")
    assert address.master == A

    address.registered("ns2", Master())
    address.lost("ns1")
    assert heard == [A, Master()]


def test_a_broker_is_never_its_own_master(caplog):
    address, heard = made()

    address.registered("ns1", Master("10.0.0.9:10911", "10.0.0.9:10912"))

    assert heard == []
    assert "another broker uses it; give each broker its own address" in caplog.text


def test_a_master_that_announces_itself_counts_until_a_name_server_names_one():
    address, heard = made()

    assert address.announce(A)
    address.registered("ns1", Master())
    assert (heard, address.master) == ([A], A), "it registers only afterwards"

    address.registered("ns1", B)
    assert (heard, address.master) == ([A, B], B)
    address.registered("ns1", Master())
    assert address.master == Master()


def test_another_master_than_a_name_server_names_is_not_followed_even_when_that_one_dies():
    address, heard = made()
    address.registered("ns1", A)

    assert not address.announce(B)
    address.lost("ns1")

    assert address.master == A
    assert address.announce(A)
    assert heard == [A]


@pytest.mark.parametrize("own", ["", "10.0.0.9:10911"])
def test_a_master_without_an_address_of_its_own_is_not_followed(own: str):
    address, heard = made()
    assert not address.announce(Master(own, "10.0.0.9:10912"))
    assert heard == []


def test_a_master_that_no_name_server_has_is_forgotten():
    address, heard = made()
    address.registered("ns1", A)

    address.forget()

    assert (heard, address.master, address.answers) == ([A, Master()], Master(), False)
