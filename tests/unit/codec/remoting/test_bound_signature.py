"""Signatures bound to a connection: what they cover, and how often one counts."""

import pytest

from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE, Binding, BoundSigner, binder
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, request
from rocketbroker.codec.remoting.request_signature import RequestSigner

SECRET = "joe-secret"
FIELDS = {"topic": "ab", "group": "c", "ü": "\ud800"}


@pytest.fixture
def binding() -> Binding:
    return Binding()


def signed(binding: Binding, code: int = 11, body: bytes = b"body", signer: BoundSigner | None = None) -> Command:
    command = request(code, dict(FIELDS), body)
    (signer or BoundSigner("joe", SECRET, "", binding.nonce)).sign(command)
    return command


def verifies(binding: Binding, command: Command, secret: str = SECRET) -> bool:
    return binding.verifies(secret, command)


def test_the_bytes_that_are_signed_stay_as_they_are():
    command = request(11, {"topic": "T", "n": "ü"}, b"body", oneway=True)
    BoundSigner("joe", SECRET, "token", "00ff").sign(command)
    assert command.header == {
        "topic": "T",
        "n": "ü",
        "AccessKey": "joe",
        "SecurityToken": "token",
        BOUND_SIGNATURE: GOLDEN,
    }


# HMAC-SHA256 by OpenSSL, of these bytes:
# "rocketbroker-bound-2\n00ff\n11 2 513\n1\n9:AccessKey3:joe13:SecurityToken5:token1:n2:ü5:topic1:T\nbody"
GOLDEN = "1.d4b616d25db668511accaaf49159f57d2d0b09b94766eb8f81847699a592715b"


def test_a_signature_counts_once(binding: Binding):
    command = signed(binding)
    assert verifies(binding, command)
    assert not verifies(binding, command)


def test_a_signature_counts_on_its_connection_alone(binding: Binding):
    assert binding.nonce != Binding().nonce
    assert not verifies(Binding(), signed(binding))


def test_it_covers_all_that_says_what_is_asked(binding: Binding):
    signer = BoundSigner("joe", SECRET, "", binding.nonce)
    for change in (
        lambda command: setattr(command, "code", 12),
        lambda command: setattr(command, "flag", FLAG_ONEWAY),
        lambda command: setattr(command, "version", 399),
        lambda command: setattr(command, "body", b"other"),
        lambda command: command.header.update(topic="a", group="bc"),
        lambda command: command.header.update(Topic=command.header.pop("topic")),
        lambda command: command.header.update(more=""),
        lambda command: command.header.update({"ü": "?"}),
        lambda command: command.header.pop("group"),
        lambda command: command.header.update(AccessKey="root"),
        lambda command: command.header.update({BOUND_SIGNATURE: "9" + command.header[BOUND_SIGNATURE]}),
    ):
        command = signed(binding, signer=signer)
        change(command)
        assert not verifies(binding, command)
    assert not verifies(binding, signed(binding, signer=signer), "guess")
    assert verifies(binding, signed(binding, signer=signer))


@pytest.mark.parametrize("text", ["", ".", "1.", "0." + "0" * 64, "1." + "0" * 63, "-1." + "0" * 64, "1." + "é" * 64])
def test_what_is_no_such_signature_is_a_wrong_one(binding: Binding, text: str):
    command = signed(binding)
    command.header[BOUND_SIGNATURE] = text
    assert not verifies(binding, command)
    command.header[BOUND_SIGNATURE] = "9" * 30 + "." + "0" * 64
    assert not verifies(binding, command)


def test_requests_may_overtake_each_other_and_old_ones_never_return(binding: Binding):
    signer = BoundSigner("joe", SECRET, "", binding.nonce)
    commands = [signed(binding, signer=signer) for _ in range(3_000)]
    assert verifies(binding, commands[1_500])
    assert all(verifies(binding, commands[number]) for number in (1_499, 1_501, 1_000, 1_502))
    assert not any(verifies(binding, commands[number]) for number in (1_499, 1_500, 1_000, 1_502, 3, 0, 478))
    assert verifies(binding, commands[2_999])
    assert not any(verifies(binding, commands[number]) for number in (1_503, 1_975, 2_999))
    assert verifies(binding, commands[1_976])


def test_a_wrong_signature_uses_up_no_counter(binding: Binding):
    command = signed(binding)
    assert not verifies(binding, command, "guess")
    assert verifies(binding, command)


def test_a_request_that_is_sent_again_is_signed_anew(binding: Binding):
    sign = binder("joe", SECRET)(binding.nonce)
    command = request(11, dict(FIELDS))
    RequestSigner("joe", SECRET).sign(command)
    sign(command)
    assert "Signature" not in command.header
    assert verifies(binding, command)
    sign(command)
    assert verifies(binding, command)
