"""Handshake of master and slave: each proves that it knows the inner credentials before the log is sent.

::

    slave  -> master:  introduction: nonce S, names of the slave
    master -> slave:   introduction: nonce M, names of the master
    slave  -> master:  MAC[32] of the slave
    master -> slave:   MAC[32] of the master
    slave  -> master:  its first report; the rest is the protocol of Apache

A MAC is HMAC-SHA256 over role, both nonces and both names, by a key derived from the inner credentials. Both nonces are
random, so no proof can be sent again, and the roles make it useless to send one back to its maker. The slave proves
itself first: a stranger who connects to the port gets nothing to try secrets on.

The handshake proves who is at the ends. It does not protect the bytes that follow from someone on the path between
them; TLS does.
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rocketbroker.codec.ha_frames import HANDSHAKE_MAGIC, NONCE_LENGTH, BrokerIdentity, Introduction
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

#: Seconds in which a peer must end the handshake.
HANDSHAKE_S: Final = 10.0
PROOF_LENGTH: Final = 32
_SETTING: Final = "innerClientAuthenticationCredentials"


class HandshakeError(CodecError):
    """A peer that does not prove who it is; the text says what is wrong and what to set."""


class WrongProofError(HandshakeError):
    """A peer that does not know the inner credentials."""


@dataclass(frozen=True, slots=True)
class HAAccess:
    """Proofs that a broker can give and demands on replication links.

    Attributes:
        own: its names.
        key: derived from the inner credentials; ``None`` without them.
        is_required: access control is on: nothing is sent to a peer without proof, or taken from it.
        refused: called with the address of a slave that is refused, and the reason.
    """

    own: BrokerIdentity
    key: bytes | None = field(default=None, repr=False)
    is_required: bool = False
    refused: Callable[[str, HandshakeError], object] = field(default=lambda _address, _error: None, repr=False)

    def proof(self, role: bytes, slave: Introduction, master: Introduction) -> bytes:
        """Return the MAC of one end."""
        parts = [role, slave.nonce, master.nonce]
        for broker in (slave.broker, master.broker):
            parts += [broker.cluster.encode(), broker.broker_name.encode(), str(broker.broker_id).encode()]
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self.key or b"", b"rocketbroker HA link 1" + content, "sha256")

    def check_names(self, peer: BrokerIdentity) -> None:
        """Check that a peer belongs to the same master and slaves.

        Raises:
            HandshakeError: It does not.
        """
        if peer[:2] != self.own[:2]:
            raise HandshakeError(
                f"it is {peer}, and this broker is {self.own}; give a master and its slaves the same brokerClusterName "
                "and brokerName"
            )
        if peer.broker_id == self.own.broker_id:
            raise HandshakeError(f"it is {peer}, as is this broker; give each a brokerId of its own")


OPEN: Final = HAAccess(BrokerIdentity("", "", 0))


class MasterHandshake:
    """The master's end, without I/O: takes bytes of the slave, and returns what to write.

    Attributes:
        peer: names of the slave, once it has introduced itself.
        has_begun: true once the slave has sent the first byte of a handshake.
        is_over: true once the slave has proved itself, or need not.
    """

    def __init__(self, access: HAAccess) -> None:
        self._access = access
        self._data = b""
        self._slave: Introduction | None = None
        self._own = Introduction(secrets.token_bytes(NONCE_LENGTH), access.own)
        self.has_begun = self.is_over = False

    @property
    def peer(self) -> BrokerIdentity | None:
        """Return the names of the slave, ``None`` until it has introduced itself."""
        return None if self._slave is None else self._slave.broker

    def feed(self, data: ReadableBuffer) -> tuple[bytes, bytes]:
        """Take bytes of the slave; return the answer, and the bytes after the handshake.

        Raises:
            HandshakeError: The slave does not prove itself.
        """
        self._data += data
        access = self._access
        self.has_begun = self.has_begun or self._data[:1] == HANDSHAKE_MAGIC[:1]
        if not access.is_required and not self.has_begun:
            return b"", self._end()
        if access.key is None:
            raise HandshakeError(
                f"{_SETTING} is empty here, and a slave of a broker with access control must prove that it knows them; "
                "set them, the same on master and slaves"
            )
        if not self.has_begun:
            raise HandshakeError(
                "it asks for the log without a proof: Apache's slaves and those with authenticationEnabled=false do "
                f"not know the handshake; set authenticationEnabled=true and the same {_SETTING} at the slave"
            )
        answer = b""
        if self._slave is None:
            self._slave, self._data = _introduced(access, self._data)
            if self._slave is None:
                return b"", b""
            answer = self._own.encode()
        if len(self._data) < PROOF_LENGTH:
            return answer, b""
        proof, self._data = self._data[:PROOF_LENGTH], self._data[PROOF_LENGTH:]
        if not hmac.compare_digest(proof, access.proof(b"slave", self._slave, self._own)):
            raise WrongProofError(f"the slave {self.peer} has other {_SETTING} than this broker; give both the same")
        return answer + access.proof(b"master", self._slave, self._own), self._end()

    def _end(self) -> bytes:
        self.is_over = True
        rest, self._data = self._data, b""
        return rest


class SlaveHandshake:
    """The slave's end, without I/O: takes bytes of the master, and returns what to write.

    Attributes:
        introduction: first bytes to send.
        is_over: true once the master has proved itself.

    Raises:
        HandshakeError: This broker has no inner credentials.
    """

    def __init__(self, access: HAAccess) -> None:
        if access.key is None:
            raise HandshakeError(f"authenticationEnabled=true, and {_SETTING} is empty; set it as at the master")
        self._access = access
        self._data = b""
        self._own = Introduction(secrets.token_bytes(NONCE_LENGTH), access.own)
        self._master: Introduction | None = None
        self.introduction = self._own.encode()
        self.is_over = False

    def feed(self, data: ReadableBuffer) -> tuple[bytes, bytes]:
        """Take bytes of the master; return the answer, and the bytes after the handshake.

        Raises:
            HandshakeError: The master does not prove itself.
        """
        self._data += data
        access, answer = self._access, b""
        if self._master is None:
            if self._data[:1] != HANDSHAKE_MAGIC[:1]:
                raise HandshakeError(no_answer("sends without a proof"))
            self._master, self._data = _introduced(access, self._data)
            if self._master is None:
                return b"", b""
            answer = access.proof(b"slave", self._own, self._master)
        if len(self._data) < PROOF_LENGTH:
            return answer, b""
        proof, rest = self._data[:PROOF_LENGTH], self._data[PROOF_LENGTH:]
        if not hmac.compare_digest(proof, access.proof(b"master", self._own, self._master)):
            raise WrongProofError(f"the master {self._master.broker} has other {_SETTING} than this slave")
        self.is_over = True
        return answer, rest


def _introduced(access: HAAccess, data: bytes) -> tuple[Introduction | None, bytes]:
    """Return the introduction of the other end and the bytes after it, or ``None`` and all bytes until it has come.

    Raises:
        HandshakeError: It cannot be read, or its broker is not of the same master and slaves.
    """
    try:
        found = Introduction.decode(data)
    except CodecError as error:
        raise HandshakeError(str(error)) from None
    if found is None:
        return None, data
    introduction, length = found
    access.check_names(introduction.broker)
    return introduction, data[length:]


def no_answer(found: str) -> str:
    """Return the error for a master that does not take part in the handshake."""
    return (
        f"the master {found}: Apache's masters, and those without {_SETTING}, do not know the handshake of access "
        "control; set authenticationEnabled=true and the same credentials there"
    )
