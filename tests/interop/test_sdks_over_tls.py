"""Official SDKs over TLS with a throw-away authority, as a user of a broker with access control."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import JOE, PROPERTIES, TOPIC, Cluster
from tests.support.sdk_process import SdkProcess
from tests.support.sdk_toolchain import SdkError, missing_sdk
from tests.support.tls_files import TlsFiles

GROUP = "CG_Sdk"


class Served(NamedTuple):
    """The address of a broker's gRPC port, and the file of the authority that issued its certificate."""

    endpoints: str
    authority: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    files = TlsFiles(tmp_path_factory.mktemp("tls"))
    with RocketMQServer(PROPERTIES | files.of_server(), grpc=True) as mq:
        cluster = Cluster(mq)
        cluster.allow((f"Topic:{TOPIC}", "Pub,Sub"), (f"Group:{GROUP}", "Sub"))
        yield Served(mq.endpoints, files.ca)
        cluster.close()


def started(language: str, served: Served, home: Path, secret: str = JOE[1]) -> SdkProcess:
    if reason := missing_sdk(language):
        pytest.skip(reason)
    variables = {
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(served.authority),
        "SDK_TLS": "1",
        "SDK_ACCESS_KEY": JOE[0],
        "SDK_SECRET_KEY": secret,
    }
    return SdkProcess.start(language, served.endpoints, home, variables)


@pytest.mark.parametrize(
    "language",
    ["python", "go", pytest.param("java", marks=pytest.mark.java), pytest.param("node", marks=pytest.mark.soak)],
)
def test_an_sdk_sends_and_receives(served: Served, language: str, tmp_path: Path):
    sdk = started(language, served, tmp_path)
    try:
        sdk.do("producer", "sender", topic=TOPIC)
        sdk.do("simple", "reader", group=GROUP, topic=TOPIC, tag="*", await_ms=5000)
        sdk.do("send", "sender", topic=TOPIC, body=f"from {language}")
        assert sdk.do("receive", "reader", max=16, invisible_ms=10_000)["count"] == 1
        (message,) = sdk.events("message", name="reader")
        assert message["body"] == f"from {language}"
        sdk.do("ack", "reader", id=message["id"])
    finally:
        sdk.close()


def test_a_wrong_secret_is_refused(served: Served, tmp_path: Path):
    sdk = started("python", served, tmp_path, "another-secret")
    try:
        sdk.do("producer", "sender", topic=TOPIC)
        with pytest.raises(SdkError, match=f"failed to fetch topic:{TOPIC} route"):
            sdk.do("send", "sender", topic=TOPIC, body="refused")
    finally:
        sdk.close()
