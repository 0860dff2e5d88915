"""Sink and source at servers that want signatures and TLS; with Apache's: tests/interop."""

import asyncio
import pickle
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext

from rocketbroker.analytics.spark.cluster_access import ClusterAccess
from rocketbroker.analytics.spark.message_writer import MessageStreamWriter
from rocketbroker.analytics.spark.pull_options import batch_options
from rocketbroker.analytics.spark.pull_reader import PullReader
from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA
from rocketbroker.analytics.spark.sink_options import sink_options
from rocketbroker.client.core.client_config import AclClientRPCHook, SessionCredentials
from rocketbroker.codec.remoting.headers.message import SendMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import ConfigError
from tests.support.certificates import server_context, tls_tunnel
from tests.support.scripted_server import ScriptedServer, header_of, name_server, route_of
from tests.support.sink_task import SinkTask

SEND, OFFSETS = RequestCode.SEND_MESSAGE_V2, (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
USER = {"accessKey": "reader", "secretKey": "geheim"}
NAMESRV = {"namesrvAddr": "ns:9876"}


def take(fields: dict[str, str], _body: bytes) -> Command:
    return response(header=header_of(SendMessageResponseHeader("0" * 32, int(fields["e"]), 0)))


def empty(_fields: dict[str, str], _body: bytes) -> Command:
    return response(header={"offset": "0"})


def check_signed(server: ScriptedServer) -> None:
    """Fail if a request lacks the signature that its fields have by the secret."""
    for asked in server.asked:
        fields = dict(asked.fields)
        expected = request(asked.code, {name: text for name, text in fields.items() if name != "Signature"}, asked.body)
        AclClientRPCHook(SessionCredentials("reader", "geheim")).sign(expected)
        assert isinstance(expected.header, dict)
        assert fields["Signature"] == expected.header["Signature"], asked


async def test_rows_are_sent_and_queues_asked_with_signatures_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await asyncio.to_thread(server_context, tmp_path)
    monkeypatch.setattr(TaskContext, "get", SinkTask)
    async with AsyncExitStack() as stack:
        broker = ScriptedServer({SEND: take, **dict.fromkeys(OFFSETS, empty)})
        await stack.enter_async_context(broker)
        tunnel = await stack.enter_async_context(tls_tunnel(broker.address, context))
        names = await stack.enter_async_context(name_server({"T": route_of({"broker-a": tunnel}, queues=1)}))
        address = await stack.enter_async_context(tls_tunnel(names.address, context))
        access = {"namesrvAddr": address, **USER, "tls": "true", "tlsCaFile": str(tmp_path / "certificate.pem")}
        writer = MessageStreamWriter(sink_options({**access, "topic": "T"}))
        batch = pa.record_batch({"body": [b"a", b"b"]})
        assert (await asyncio.to_thread(writer.write, iter([batch]))).count == 2
        reader = PullReader(batch_options({**access, "subscribe": "T"}), PULLED_SCHEMA)
        assert await asyncio.to_thread(reader.partitions) == []
        check_signed(broker)
        check_signed(names)
        assert {asked.code for asked in broker.asked} >= {SEND, RequestCode.GET_MAX_OFFSET}


def test_the_secret_is_not_shown_and_goes_to_tasks() -> None:
    options = sink_options({**NAMESRV, **USER, "securityToken": "marke"})
    assert options.access == pickle.loads(pickle.dumps(options.access))
    assert options.access.credentials == SessionCredentials("reader", "geheim", "marke")
    assert "geheim" not in repr(options)
    assert "marke" not in repr(options)


def test_without_options_nothing_is_signed_or_encrypted() -> None:
    config = batch_options({**NAMESRV, "subscribe": "T"}).access.client_config()
    assert (config.credentials, config.tls) == (None, False)
    assert isinstance(ClusterAccess("ns", None, tls=True).client_config().tls, bool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accessKey": "a"}, r"secretKey is missing \(secret of that user\); give accessKey and secretKey together"),
        ({"secretKey": "geheim"}, "accessKey is missing"),
        ({"securityToken": "geheim"}, "accessKey is missing"),
        ({"tls": "yes"}, "tls is 'yes'; give true or false"),
        ({"tlsCaFile": "ca.pem"}, "tlsCaFile is 'ca.pem', but TLS is off; set the option tls to true"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        sink_options({**NAMESRV, **options})
    assert "geheim" not in str(raised.value)


def test_a_file_that_is_missing_or_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for name, why in (("none.pem", "No such file"), ("no.pem", "")):
        options = sink_options({**NAMESRV, "tls": "true", "tlsCaFile": str(tmp_path / name)})
        with pytest.raises(ConfigError, match=rf"tlsCaFile is '.*{name}', which cannot be read: .*{why}"):
            options.access.client_config()
