"""Signatures of requests."""

import pytest

from rocketbroker.client.acl_client_rpc_hook import AclClientRPCHook, SessionCredentials
from rocketbroker.client.errors import ClientError
from rocketbroker.client.mq_version import version_desc
from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, QueryMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import request


def test_a_signature_is_the_one_that_apaches_client_makes():
    """The text and its signature are those of Apache's AclSignerTest."""
    command = request(34)
    AclClientRPCHook(SessionCredentials("RocketMQ", "12345678")).sign(command)
    assert command.header == {"AccessKey": "RocketMQ", "Signature": "IUc8rrO/0gDch8CjObLQsW2rsiA="}


def test_the_values_are_signed_in_the_order_of_their_names_and_then_the_body():
    plain = request(34)
    AclClientRPCHook(SessionCredentials("ak-tokenqueue-1body-of-it", "secret")).sign(plain)
    command = request(34, {"topic": "-1", "queueId": "queue", "unset": None}, b"body-of-it")
    hook = AclClientRPCHook(SessionCredentials("ak-", "secret", "token"))
    hook.sign(command)
    assert command.header["Signature"] == plain.header["Signature"]
    assert command.header.keys() == {"AccessKey", "SecurityToken", "topic", "queueId", "Signature"}
    before = dict(command.header)
    hook.sign(command)
    assert command.header == before, "a request that is sent again keeps its signature"


def test_the_mark_of_a_query_by_unique_id_is_not_signed():
    """Brokers of 4.9 leave the mark out of the signature, later ones for clients up to 4.9.3."""
    command = request(12, QueryMessageRequestHeader("T", "id", 1, 0, 9, unique_key_query=True))
    hook = AclClientRPCHook(SessionCredentials("ak", "sk"))
    hook.sign(command)
    plain = request(12, {name: text for name, text in command.header.items() if name[0] != "_"})
    hook.sign(plain)
    assert command.header == {**plain.header, "_UNIQUE_KEY_QUERY": "true"}
    assert version_desc(command.version) == "V4_9_3"
    assert version_desc(plain.version) == "V5_5_0"


def test_a_typed_header_is_signed_as_it_is_sent():
    command = request(30, GetMaxOffsetRequestHeader("T", 3))
    AclClientRPCHook(SessionCredentials("ak", "sk")).sign(command)
    assert (command.header["topic"], command.header["queueId"]) == ("T", "3")


def test_the_secret_is_not_shown():
    credentials = SessionCredentials("ak", "sk", "token")
    assert "sk" not in repr(credentials)
    assert credentials.__rich_repr__() == [("access_key", "ak")]


@pytest.mark.parametrize("keys", [("", "sk"), ("ak", "")])
def test_an_empty_key_is_refused(keys: tuple[str, str]):
    with pytest.raises(ClientError, match="is empty; give both"):
        SessionCredentials(*keys)
