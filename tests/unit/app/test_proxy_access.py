"""Access control of mqproxy: what it checks, by its settings."""

import hashlib
import hmac
import json
import logging

import pytest

from rocketbroker.app.proxy_access import ProxyAccess
from rocketbroker.auth.audit_log import AUDIT_LOGGER
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.users import User, UserType
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.call_context import StatusError
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from tests.support.fakes import FakeClock

INNER = '{"accessKey":"inner","secretKey":"inner-secret"}'
ROUTE = pb.QueryRouteRequest(topic=pb.Resource(name="T"))
USERS = {name: User(name, f"{name}-secret", UserType.SUPER) for name in ("root", "ann")}


def access_of(**settings: object) -> ProxyAccess:
    """Return the access control of a proxy that knows ``USERS``."""
    config = ProxyConfig(
        authentication_enabled=True,
        namesrv_addr="127.0.0.1:1",
        inner_client_authentication_credentials=INNER,
        **settings,  # type: ignore[arg-type]
    )
    access = ProxyAccess.of(config, ClusterServiceManager("proxy-1", config), FakeClock())
    assert access is not None
    access.users.problem = ""
    access.users._copy.publish(AccessRules(USERS))
    return access


def signed(name: str) -> dict[str, str | bytes]:
    digest = hmac.digest(f"{name}-secret".encode(), b"2026", hashlib.sha1).hex()
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": "2026", "authorization": text}


@pytest.mark.parametrize(("bound", "served"), [("", {"root", "ann"}), ("inner,root", {"ann"}), ("*", set())])
def test_calls_of_users_who_must_bind_their_signatures_are_refused(bound: str, served: set[str]):
    calls = access_of(bound_signature_users=bound).calls
    for name in served:
        assert calls.check(signed(name), ROUTE, "127.0.0.1:5") == name
    for name in USERS.keys() - served:
        with pytest.raises(StatusError, match=f"User:{name}: boundSignatureUsers demands") as caught:
            calls.check(signed(name), ROUTE, "127.0.0.1:5")
        assert caught.value.code == pb.FORBIDDEN


def test_a_refused_call_is_in_the_audit_log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    with pytest.raises(StatusError, match="boundSignatureUsers demands"):
        access_of(bound_signature_users="root").calls.check(signed("root"), ROUTE, "127.0.0.1:5")
    (line,) = (json.loads(record.message) for record in caplog.records if record.name == AUDIT_LOGGER)
    assert (line["event"], line["server"], line["user"], line["address"], line["request"]) == (
        "refused",
        "proxy",
        "root",
        "127.0.0.1:5",
        "QueryRoute",
    )
    assert "boundSignatureUsers demands" in line["reason"]
