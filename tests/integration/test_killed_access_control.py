"""A broker that is killed on receipt of an answer keeps its users and policies, and its next start finds no lock."""

import json

import pytest

from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServers
from tests.support.raw_client import RawAnswer, RawClient

ROOT = ("root", "root-secret")
SETTINGS: dict[str, str | int] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}
POLICY = {
    "policies": [
        {"policyType": "Custom", "entries": [{"resource": "Topic:T", "actions": ["Get"], "decision": "Allow"}]}
    ]
}


def ask(client: RawClient, user: tuple[str, str], code: Code, fields: dict[str, str], body: object = None) -> RawAnswer:
    command = request(code, dict(fields), b"" if body is None else json.dumps(body).encode())
    RequestSigner(*user).sign(command)
    return client.ask(code, command.header, bytes(command.body))


@pytest.mark.long
@pytest.mark.proves("Tables", "users and policies: answered after the disk")
def test_answered_users_and_policies_survive_a_kill(servers: OurServers):
    broker = servers.launch_broker("", None, SETTINGS)
    broker.wait_for(BOOTED, BOOT_LIMIT)
    names = {name: (name, f"secret-of-{name}") for name in ("joe", "gone", "late")}
    with RawClient(broker.address) as client:
        for name, (_, secret) in names.items():
            made = ask(client, ROOT, Code.AUTH_CREATE_USER, {"username": name}, {"password": secret})
            assert made.code == ResponseCode.SUCCESS, made
        for name in ("joe", "gone"):
            given = ask(client, ROOT, Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, POLICY)
            assert given.code == ResponseCode.SUCCESS, given
        assert ask(client, ROOT, Code.AUTH_DELETE_USER, {"username": "gone"}).code == ResponseCode.SUCCESS
        last = ask(client, ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:late"}, POLICY)
        broker.kill()
        assert last.code == ResponseCode.SUCCESS, last

    broker = servers.launch_broker("", broker.store, SETTINGS, port=broker.port)
    broker.wait_for(BOOTED, BOOT_LIMIT)
    with RawClient(broker.address) as client:
        codes = {name: ask(client, user, Code.GET_TOPIC_CONFIG, {"topic": "T"}).code for name, user in names.items()}
    assert codes == {
        "joe": ResponseCode.TOPIC_NOT_EXIST,
        "late": ResponseCode.TOPIC_NOT_EXIST,
        "gone": ResponseCode.NO_PERMISSION,
    }
