"""Apache's broker at our name server and our broker at Apache's; clients route through both."""

import asyncio

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.support.java import Java
from tests.support.java_lines import check_content, got, sent
from tests.support.java_process import JavaServer
from tests.support.our_servers import OurServer, OurServers, make_topic

pytestmark = pytest.mark.java

NUMBER = 400


async def brokers_of(namesrv: str, topic: str) -> dict[str, str]:
    """Name and address of each broker in the topic's route."""
    async with AdminClient(namesrv) as admin:
        route = await admin.examine_topic_route_info(topic)
    return {each.broker_name: each.broker_addrs[0] for each in route.broker_datas}


# That our broker registers at name servers of Apache's is shown below.
@pytest.mark.parametrize("namesrv_of", ["ours", pytest.param("apache", marks=pytest.mark.soak)])
def test_clients_use_both_brokers_through_one_name_server(java: Java, our_servers: OurServers, namesrv_of: str):
    namesrv: JavaServer | OurServer = our_servers.namesrv() if namesrv_of == "ours" else java.namesrv()
    ours = our_servers.broker(namesrv.address, brokerName="broker-ours")
    apache = java.broker(namesrv.address, brokerName="broker-apache")
    for broker in (ours, apache):
        make_topic(broker.address, namesrv.address, "Both", 2)
    wanted = {"broker-ours": ours.address, "broker-apache": apache.address}
    assert asyncio.run(brokers_of(namesrv.address, "Both")) == wanted

    consumer = java.start(
        "Push", f"namesrv={namesrv.address}", "topic=Both", "group=CG_Both", f"stopAfter={NUMBER}", client="4.9.8"
    )
    done = java.run("Produce", f"namesrv={namesrv.address}", "topic=Both", f"plan=sync:{NUMBER}:4")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    consumer.wait_for("DONE")

    messages = got(consumer.text())
    assert sorted(each.n for each in messages) == list(range(NUMBER))
    check_content(messages)
    stored = sum(end for broker in (ours, apache) for end in asyncio.run(ends_at(namesrv.address, broker.address)))
    assert stored == NUMBER == len(sent(done.stdout))
    assert all(min(asyncio.run(ends_at(namesrv.address, broker.address))) > 0 for broker in (ours, apache))


async def ends_at(namesrv: str, broker: str) -> list[int]:
    """The maximum offset of each queue of the topic on one broker."""
    async with AdminClient(namesrv) as admin:
        table = await admin.examine_topic_stats("Both")
        (name,) = await admin.broker_names_at(broker)
    return [each.max_offset for queue, each in table.offset_table.items() if queue.broker_name == name]


def test_a_broker_registers_at_name_servers_of_both_kinds(java: Java, our_servers: OurServers):
    apache, ours = java.namesrv(), our_servers.namesrv()
    broker = our_servers.broker(f"{apache.address};{ours.address}")
    make_topic(broker.address, apache.address, "Everywhere")
    for namesrv in (apache, ours):
        assert asyncio.run(brokers_of(namesrv.address, "Everywhere")) == {"broker-a": broker.address}
        done = java.run("Produce", f"namesrv={namesrv.address}", "topic=Everywhere", "plan=sync:20:1")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert broker.stop() == 0
    for namesrv in (apache, ours):
        with pytest.raises(Exception, match="No topic route info"):
            asyncio.run(brokers_of(namesrv.address, "Everywhere"))
