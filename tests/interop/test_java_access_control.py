"""The official Java client with AclClientRPCHook: served with its rights, told why without."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.client import ClientConfig
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_config import SessionCredentials
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import JOE, PROPERTIES, ROOT, TOPIC, Cluster
from tests.support.java import Java
from tests.support.java_process import JavaProcess

pytestmark = pytest.mark.java


async def test_a_client_sends_and_consumes_with_its_rights_and_is_refused_without(java: Java):
    with RocketMQServer(PROPERTIES) as mq:
        cluster = await asyncio.to_thread(Cluster, mq)
        try:
            await asyncio.to_thread(check, java, mq.namesrv_addr, cluster)
        finally:
            cluster.close()


def sent_and_got(client: JavaProcess) -> tuple[int, int]:
    """Return the number of messages that a client has sent, and of those that came back to it."""
    text = client.text()
    return text.count("SENT\t"), text.count("GOT\t")


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
    client.wait_until(lambda: sent_and_got(client) == (3, 3), 120, "get its own messages")


PLAIN_ACL = f"""accounts:
  - accessKey: {JOE[0]}
    secretKey: {JOE[1]}
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {TOPIC}=PUB|SUB
    groupPerms:
      - CG_Signed=SUB
"""


async def create_topics(mq: RocketMQServer) -> None:
    async with AdminClient(ClientConfig(mq.namesrv_addr, credentials=SessionCredentials(*ROOT))) as admin:
        for topic in (TOPIC, "Elsewhere"):
            await admin.create_and_update_topic_config(mq.broker_addr, TopicConfig(topic, 1, 1))


def test_a_client_of_4_9_signs_as_a_user_of_access_control_1(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The broker takes the user over from plain_acl.yml; the client is as old as the file."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    with RocketMQServer(PROPERTIES | {"migrateAuthFromV1Enabled": "true"}) as mq:
        asyncio.run(create_topics(mq))

        def arguments(topic: str, *more: str) -> list[str]:
            return [f"namesrv={mq.namesrv_addr}", f"topic={topic}", f"user={JOE[0]}", f"secret={JOE[1]}", *more]

        refused = java.run("Signed", *arguments("Elsewhere", "consume=false"), client="4.9.8").stdout
        assert refused.count("User:joe has no permission to access Topic:Elsewhere") == 3
        client = java.start("Signed", *arguments(TOPIC), client="4.9.8")
        client.wait_until(lambda: sent_and_got(client) == (3, 3), 120, "get its own messages")
