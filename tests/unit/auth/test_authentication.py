"""Credentials of requests and of calls."""

import hmac

import pytest

from rocketbroker.auth.authentication import Authenticator
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthenticationError
from rocketbroker.auth.users import User, UserStatus
from rocketbroker.client.core.client_config import AclClientRPCHook, SessionCredentials
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, QueryMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_signature import SigningKey

JOE = User("joe", "geheim")
DATE = "20261128T161500Z"


def rules(*users: User) -> AccessRules:
    return AccessRules({user.name: user for user in users})


def signed(command: Command, name: str = "joe", secret: str = "geheim") -> Command:
    AclClientRPCHook(SessionCredentials(name, secret)).sign(command)
    return command


def user_of(held: Authenticator, command: Command) -> User:
    command.body = memoryview(command.body)
    return held.authenticate(command)


def metadata(name: str = "joe", secret: str = "geheim", **changes: str) -> dict[str, str]:
    digest = hmac.digest(secret.encode(), DATE.encode(), "sha1").hex().upper()
    text = f"MQv2-HMAC-SHA1 Credential={name}/cn/RocketMQ, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": DATE, "authorization": text} | {
        key.replace("_", "-"): value for key, value in changes.items()
    }


@pytest.mark.parametrize(
    "command",
    [
        request(34, None, b"body"),
        request(30, GetMaxOffsetRequestHeader("T", 3)),
        request(12, QueryMessageRequestHeader("T", "id", 1, 0, 9, unique_key_query=True)),
    ],
)
def test_a_request_of_our_client_is_that_of_its_user(command: Command):
    assert user_of(Authenticator(rules(JOE)), signed(command)) is JOE


@pytest.mark.parametrize(
    ("change", "value"), [("topic", "U"), ("queueId", "4"), ("added", "x"), ("Signature", ""), ("AccessKey", "bob")]
)
def test_a_request_that_was_changed_on_the_way_is_rejected(change: str, value: str):
    held = Authenticator(rules(JOE, User("bob", "other")))
    command = signed(request(30, {"topic": "T", "queueId": "3"}, b"body"))
    command.header[change] = value
    with pytest.raises(AuthenticationError, match=r"check signature failed\."):
        user_of(held, command)


def test_another_body_is_rejected():
    command = signed(request(30, {"topic": "T"}, b"body"))
    command.body = b"bodY"
    with pytest.raises(AuthenticationError, match=r"check signature failed\."):
        user_of(Authenticator(rules(JOE)), command)


@pytest.mark.parametrize("fields", [None, {}, {"topic": "T"}, {"AccessKey": "", "Signature": "x"}])
def test_a_request_without_a_name_says_what_to_do(fields: dict[str, str] | None):
    with pytest.raises(AuthenticationError, match=r"username cannot be null\. The request is not signed: give"):
        Authenticator(rules(JOE)).authenticate(request(34, fields))


def test_a_wrong_name_and_a_wrong_secret_give_one_answer():
    held = Authenticator(rules(JOE))
    texts = []
    for name, secret in (("joe", "wrong"), ("bob", "geheim")):
        with pytest.raises(AuthenticationError) as refused:
            user_of(held, signed(request(34), name, secret))
        texts.append(str(refused.value).replace(name, "X"))
    assert texts[0] == texts[1]
    assert "geheim" not in texts[0]


def test_an_unknown_name_costs_a_signature_as_well():
    """Otherwise the time of an answer tells which names exist."""
    held, bodies = Authenticator(rules(JOE)), []

    class Counted(SigningKey):
        def digest(self, content: ReadableBuffer, body: ReadableBuffer = b"") -> bytes:
            bodies.append(body)
            return super().digest(content, body)

    held._nobody = Counted("x")
    for fields in ({"AccessKey": "bob", "Signature": "x"}, {"AccessKey": "bob"}):
        with pytest.raises(AuthenticationError):
            held.authenticate(request(34, fields, b"body"))
    with pytest.raises(AuthenticationError):
        held.authenticate_call(metadata("bob"))
    assert bodies == [b"body", b"body", b""]


def test_a_disabled_user_is_named_only_to_who_has_its_secret():
    held = Authenticator(AccessRules({"joe": User("joe", "geheim", status=UserStatus.DISABLE)}, option="-c C"))
    with pytest.raises(AuthenticationError, match=r"disabled\. To enable it: mqadmin updateUser -c C -u joe"):
        user_of(held, signed(request(34)))
    with pytest.raises(AuthenticationError, match="check signature failed"):
        user_of(held, signed(request(34), secret="wrong"))


@pytest.mark.parametrize("name", ["a\nb", "\u0422", "x" * 5_000])
def test_a_strange_name_is_shown_in_a_bounded_line(name: str):
    with pytest.raises(AuthenticationError) as refused:
        Authenticator(rules()).authenticate(request(34, {"AccessKey": name}))
    assert str(refused.value).isascii()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_changed_secret_counts_from_the_next_request_on():
    held = Authenticator(rules(JOE))
    command = signed(request(34))
    assert user_of(held, command) is JOE
    newer = User("joe", "neu")
    held.follow(rules(newer))
    with pytest.raises(AuthenticationError):
        user_of(held, command)
    assert user_of(held, signed(request(34), secret="neu")) is newer
    held.follow(rules())
    with pytest.raises(AuthenticationError):
        user_of(held, signed(request(34), secret="neu"))


def test_keys_are_kept_for_unchanged_users_and_for_no_others():
    held = Authenticator(rules(JOE, User("bob", "other")))
    user_of(held, signed(request(34)))
    user_of(held, signed(request(34), "bob", "other"))
    key = held._keys["joe"]
    held.follow(rules(JOE, User("bob", "new")))
    assert held._keys == {"joe": key}
    assert isinstance(key[1], SigningKey)


def test_a_call_is_that_of_its_user():
    held = Authenticator(rules(JOE))
    assert held.authenticate_call(metadata()) is JOE
    small = metadata()
    before, mark, signature = small["authorization"].partition("Signature=")
    assert held.authenticate_call({**small, "authorization": before + mark + signature.lower()}) is JOE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"authorization": ""}, "username cannot be null. The call is not signed"),
        ({"x_mq_date_time": ""}, "datetime is null"),
        ({"x_mq_date_time": "20261128T161501Z"}, "check signature failed"),
        ({"authorization": "Bearer x"}, "begins with 'Bearer', not MQv2-HMAC-SHA1"),
        ({"authorization": "MQv2-HMAC-SHA1"}, "has no Credential"),
        ({"authorization": "MQv2-HMAC-SHA1 Signature=00"}, "has no Credential"),
        ({"authorization": "MQv2-HMAC-SHA1 Credential=joe"}, "check signature failed"),
        ({"authorization": "MQv2-HMAC-SHA1 Credential=joe, Signature=xyz"}, "check signature failed"),
        ({"authorization": "MQv2-HMAC-SHA1 Credential=joe, Signature=00"}, "check signature failed"),
    ],
)
def test_a_call_with_wrong_metadata_is_rejected(changes: dict[str, str], reason: str):
    with pytest.raises(AuthenticationError, match=reason):
        Authenticator(rules(JOE)).authenticate_call(metadata(**changes))


@pytest.mark.parametrize(("name", "secret"), [("joe", "wrong"), ("bob", "geheim")])
def test_a_call_of_a_wrong_user_is_rejected(name: str, secret: str):
    with pytest.raises(AuthenticationError, match=f"User:{name}: check signature failed"):
        Authenticator(rules(JOE)).authenticate_call(metadata(name, secret))
