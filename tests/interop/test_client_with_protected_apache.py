"""Our client with Apache's broker that requires signatures (ACL 2.0) and serves TLS."""

import asyncio
import json
import ssl
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext

from rocketbroker.analytics.spark.message_writer import MessageStreamWriter
from rocketbroker.analytics.spark.pull_options import batch_options
from rocketbroker.analytics.spark.pull_reader import PullReader
from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA
from rocketbroker.analytics.spark.sink_options import sink_options
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.client_config import ClientConfig, SessionCredentials
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere
from rocketbroker.common.errors import RocketBrokerError
from tests.support.certificates import server_context
from tests.support.java import Java
from tests.support.sink_task import SinkTask

PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
USER = SessionCredentials("admin", "secret-12345")
NUMBER = 20
# A JVM that has just started is slow on a machine that has other work.
LIMIT_S = 30.0


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(300)
async def test_signed_requests_over_tls_are_served(java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    await asyncio.to_thread(server_context, tmp_path)
    settings = {"tls.test.mode.enable": "false", "tls.server.need.client.auth": "none"}
    settings |= {"tls.server.keyPath": f"{tmp_path}/key.pem", "tls.server.certPath": f"{tmp_path}/certificate.pem"}
    (tmp_path / "tls.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.config.file={tmp_path}/tls.properties")
    java.serves_tls = True
    namesrv = await asyncio.to_thread(java.namesrv)
    await asyncio.to_thread(
        java.broker,
        namesrv.address,
        authenticationEnabled="true",
        authenticationProvider=f"{PROVIDERS}.DefaultAuthenticationProvider",
        authenticationMetadataProvider=f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
        initAuthenticationUser=json.dumps({"username": USER.access_key, "password": USER.secret_key}),
        innerClientAuthenticationCredentials=json.dumps({"accessKey": USER.access_key, "secretKey": USER.secret_key}),
    )
    tls = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    config = ClientConfig(namesrv.address, credentials=USER, tls=tls, mq_client_api_timeout_s=LIMIT_S)
    await exchange(config)
    await asyncio.to_thread(write_and_read, namesrv.address, tmp_path, monkeypatch)
    # It does not know the request for a nonce, so that the client signs as RocketMQ's does.
    bound = msgspec.structs.replace(config, bind_signatures=True)
    async with Producer("PG_Bound", bound, send_timeout_s=LIMIT_S) as producer:
        assert (await producer.send(Message("T", b"bound"))).msg_id
    for wrong in (
        ClientConfig(namesrv.address),
        ClientConfig(namesrv.address, credentials=SessionCredentials("admin", "no")),
    ):
        async with Producer("PG", wrong, retry_times_when_send_failed=0, send_timeout_s=LIMIT_S) as producer:
            with pytest.raises(RocketBrokerError, match="CODE: 16"):
                await producer.send(Message("T", b"body"))


# ACL 1.0 wants names of seven characters or more. The shop may send to and read topic T only.
SHOP = SessionCredentials("the-shop", "secret-12345")
OWNER = SessionCredentials("the-owner", "secret-12345")
STRANGER = SessionCredentials("the-shop", "no-such-secret")
PLAIN_ACL = f"""\
accounts:
  - accessKey: {SHOP.access_key}
    secretKey: {SHOP.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - T=PUB|SUB
    groupPerms:
      - CG=SUB
  - accessKey: {OWNER.access_key}
    secretKey: {OWNER.secret_key}
    admin: true
"""


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(300)
async def test_acl_1_of_apaches_4_9_accepts_signed_requests(java: Java):
    (java.home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    java.server_version = "4.9.7"
    namesrv = await asyncio.to_thread(java.namesrv)
    await asyncio.to_thread(java.broker, namesrv.address, aclEnable="true")
    for user in (SHOP, OWNER):
        await exchange(ClientConfig(namesrv.address, credentials=user, mq_client_api_timeout_s=LIMIT_S))
    refusals = [
        ("T", ClientConfig(namesrv.address), "No accessKey"),
        ("T", ClientConfig(namesrv.address, credentials=STRANGER), "signature"),
        ("Other", ClientConfig(namesrv.address, credentials=SHOP), "No default permission for topic:Other"),
    ]
    for topic, config, reason in refusals:
        async with Producer("PG", config, retry_times_when_send_failed=0, send_timeout_s=LIMIT_S) as producer:
            with pytest.raises(RocketBrokerError, match=reason):
                await producer.send(Message(topic, b"body"))


def write_and_read(namesrv: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send rows and read them by the Spark format, as its tasks do."""
    access = {"namesrvAddr": namesrv, "accessKey": USER.access_key, "secretKey": USER.secret_key}
    access |= {"tls": "true", "tlsCaFile": f"{folder}/certificate.pem"}
    monkeypatch.setattr(TaskContext, "get", SinkTask)
    writer = MessageStreamWriter(sink_options({**access, "topic": "Rows", "sendTimeoutMs": "30000"}))
    batch = pa.record_batch({"body": [b"%d" % number for number in range(NUMBER)]})
    assert writer.write(iter([batch])).count == NUMBER
    reader = PullReader(batch_options({**access, "subscribe": "Rows"}), PULLED_SCHEMA)
    rows = [row for part in reader.partitions() for found in reader.read(part) for row in found.to_pylist()]
    assert sorted(int(row["body"]) for row in rows) == list(range(NUMBER))
    unsigned = {name: text for name, text in access.items() if name not in {"accessKey", "secretKey"}}
    with pytest.raises(RocketBrokerError, match="CODE: 16"):
        PullReader(batch_options({**unsigned, "subscribe": "Rows"}), PULLED_SCHEMA).partitions()


async def exchange(config: ClientConfig) -> None:
    """Send, consume and administer."""
    consumer = PushConsumer("CG", config, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with (
        Producer("PG", config, send_timeout_s=LIMIT_S) as producer,
        consumer,
        AdminClient(config, timeout_s=LIMIT_S) as admin,
    ):
        await consumer.subscribe("T")
        results = [await producer.send(Message("T", b"%d" % index, keys="k")) for index in range(NUMBER)]
        bodies = set()
        async with asyncio.timeout(60):
            async for message in consumer:
                bodies.add(int(message.body))
                if len(bodies) == NUMBER:
                    break
        assert bodies == set(range(NUMBER))
        assert "T" in await admin.fetch_all_topic_list()
        assert (await admin.find_message("T", results[0].msg_id)).body == b"0"
