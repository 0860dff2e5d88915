"""The official Java client with AclClientRPCHook: served with its rights, told why without."""

import asyncio

import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import JOE, PROPERTIES, ROOT, TOPIC, Cluster
from tests.support.java import Java

pytestmark = pytest.mark.java


async def test_a_client_sends_and_consumes_with_its_rights_and_is_refused_without(java: Java):
    with RocketMQServer(PROPERTIES) as mq:
        cluster = await asyncio.to_thread(Cluster, mq)
        try:
            await asyncio.to_thread(check, java, mq.namesrv_addr, cluster)
        finally:
            cluster.close()


def check(java: Java, namesrv: str, cluster: Cluster) -> None:
    def arguments(user: tuple[str, str], *more: str) -> list[str]:
        return [f"namesrv={namesrv}", f"topic={TOPIC}", f"user={user[0]}", f"secret={user[1]}", *more]

    cluster.allow(("Topic:Elsewhere", "Pub"))
    before = cluster.state()
    text = java.run("Signed", *arguments(JOE, "consume=false")).stdout
    assert text.count("REFUSED\t") == 3
    assert f"CODE: {ResponseCode.NO_PERMISSION.value}" in text
    assert f"User:joe has no permission to access Topic:{TOPIC} from 127.0.0.1, no matched policies." in text
    text = java.run("Signed", *arguments((ROOT[0], "guess"), "consume=false")).stdout
    assert text.count("REFUSED\t") == 3
    assert "check signature failed" in text
    assert cluster.state() == before

    # What a plain client needs, and nothing more.
    cluster.allow((f"Topic:{TOPIC}", "Pub,Sub"), ("Group:CG_Signed", "Sub"))
    client = java.start("Signed", *arguments(JOE))
    client.wait_until(lambda: client.text().count("GOT\t") == 3, 120, "get its own messages")
    assert client.text().count("SENT\t") == 3
