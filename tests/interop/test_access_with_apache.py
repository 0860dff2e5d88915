"""Random policies and requests at two running brokers, Apache's and ours: both serve and refuse the same."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rocketbroker.auth.policies import Acl, PolicyEntry
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.support.access_cases import entries
from tests.support.access_requests import HEADERS, body_of, texts_of
from tests.support.java import Java
from tests.support.java_toolchain import require_java
from tests.support.signed_client import SignedClient

pytestmark = pytest.mark.java

ROOT, JOE = ("root", "root-secret"), ("joe", "joe-secret")
AUTH = "org.apache.rocketmq.auth"
SWITCHES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret"}),
}
PROVIDERS = {
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
NAMES = ["T", "U", "G", "H", "%DLQ%G", "%", "DefaultCluster"]
SOURCES = ["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8"]
# Those of the name server, which checks nothing in the original.
NAMESRV = set(range(100, 110)) | {205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
CODES = sorted(HEADERS.keys() - NAMESRV)


class Broker:
    """A broker, as root changes the policies of joe and as joe sends requests."""

    def __init__(self, address: str) -> None:
        self._root, self._joe = SignedClient(address, ROOT), SignedClient(address, JOE)
        self._address = address
        self.refused: Counter[bool] = Counter()
        self.done(Code.AUTH_CREATE_USER, {"username": JOE[0]}, json.dumps({"password": JOE[1]}).encode())

    def done(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        answer = self._root.ask(code, fields, body)
        assert answer.code == ResponseCode.SUCCESS, answer

    def set_policies(self, acl: Acl) -> None:
        # Apache's broker finds no policy to delete before the first one was created.
        self._root.ask(Code.AUTH_DELETE_ACL, {"subject": acl.subject})
        info = acl.info()
        if info.policies:
            self.done(Code.AUTH_CREATE_ACL, {"subject": acl.subject}, info.encode())
        # Ours closes a connection that has lost the rights of its groups.
        self._joe.close()
        self._joe = SignedClient(self._address, JOE)

    def refuses(self, code: int, fields: dict[str, str], body: bytes) -> bool:
        answer = self._joe.ask(code, fields, body)
        is_refused = answer.code == ResponseCode.NO_PERMISSION and "has no permission to access" in answer.remark
        self.refused[is_refused] += 1
        return is_refused

    def close(self) -> None:
        self._root.close()
        self._joe.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    require_java()
    assert np.__version__, "imported before the thread of our broker imports it, since hypothesis looks at it meanwhile"
    java = Java(tmp_path_factory.mktemp("java"))
    try:
        apache = java.broker(java.namesrv().address, None, **SWITCHES, **PROVIDERS)
        with RocketMQServer({**SWITCHES, "authorizationOpenAsApache": "true"}) as mq:
            both = Broker(apache.address), Broker(mq.broker_addr)
            yield both
            for broker in both:
                broker.close()
    finally:
        java.close()


def one_entry_each(found: Sequence[PolicyEntry]) -> tuple[PolicyEntry, ...]:
    return tuple({entry.resource: entry for entry in found}.values())


POLICY = st.lists(entries(NAMES, SOURCES), max_size=6).map(one_entry_each)
REQUEST = st.sampled_from(CODES).flatmap(
    lambda code: st.tuples(
        st.just(code), texts_of(header) if (header := HEADERS[code]) else st.just({"unused": "1"}), body_of(code)
    )
)


@settings(max_examples=30, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(custom=POLICY, default=POLICY, asked=st.lists(REQUEST, min_size=15, max_size=25))
def test_both_refuse_the_same(
    brokers: tuple[Broker, Broker],
    custom: tuple[PolicyEntry, ...],
    default: tuple[PolicyEntry, ...],
    asked: list[tuple[int, dict[str, str], bytes]],
):
    acl = Acl(JOE[0], custom, default)
    for broker in brokers:
        broker.set_policies(acl)
    for code, fields, body in asked:
        theirs, ours = (broker.refuses(code, fields, body) for broker in brokers)
        assert ours == theirs, f"{Code(code).name} {fields}: Apache's broker refuses: {theirs}, ours: {ours}"


def test_requests_of_both_kinds_were_compared(brokers: tuple[Broker, Broker]):
    for broker in brokers:
        assert min(broker.refused[True], broker.refused[False]) > 100, broker.refused
