"""Signatures that are bound to their connection; an extension, which RocketMQ's own clients and servers do not have.

RocketMQ's signature covers neither request code, time nor connection: whoever reads a request can send it again, as
another one, too. A client that wants more asks for the nonce of its connection by ``NONCE_CODE``, which needs no
signature. A server that lacks it answers REQUEST_CODE_NOT_SUPPORTED, and the client goes on with RocketMQ's signature.
Otherwise each of its requests has, in place of ``Signature``::

    BoundSignature := counter "." hex(HMAC-SHA256(secret, content))
    content        := "rocketbroker-bound-2\\n" nonce "\\n" head "\\n" counter "\\n" field* "\\n" body
    head           := code " " flag " " version
    field          := length(name) ":" name length(value) ":" value

``counter`` is a decimal number from 1 on. ``field`` are all extFields but ``BoundSignature`` and ``Signature``, ordered
by name in UTF-8; lengths are of UTF-8 bytes, in decimal. The server takes each counter once. The opaque is not covered:
it leads an answer to its request, and says nothing about what is asked.
"""

import hmac
import itertools
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, to_ext_fields
from rocketbroker.codec.remoting.request_signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

#: Asks a server for the nonce of the connection.
NONCE_CODE: Final = 390_001
BOUND_SIGNATURE: Final = "BoundSignature"
_FORM: Final = re.compile(r"([1-9][0-9]{0,18})\.([0-9a-f]{64})")
# Requests may overtake each other on their way through a client, whose heartbeats leave from a second thread.
_WINDOW: Final = 1_024
_SEEN: Final = (1 << _WINDOW) - 1


class NonceResponseHeader(CommandCustomHeader):
    """Answer to ``NONCE_CODE``."""

    nonce: str


def _digest(secret: str, nonce: str, command: Command, counter: int, fields: Mapping[str, str]) -> str:
    head = f"{command.code} {command.flag} {command.version}"
    parts = [f"rocketbroker-bound-2\n{nonce}\n{head}\n{counter}\n".encode()]
    # Each text has bytes of its own: half a surrogate pair, which no frame carries, is no question mark.
    encoded = {name.encode("utf-8", "surrogatepass"): value for name, value in fields.items()}
    for name, text in sorted(encoded.items()):
        value = text.encode("utf-8", "surrogatepass")
        parts += [b"%d:" % len(name), name, b"%d:" % len(value), value]
    parts += [b"\n", bytes(command.body)]
    return hmac.digest(secret.encode("utf-8", "replace"), b"".join(parts), "sha256").hex()


class BoundSigner:
    """Signs the requests of one user on one connection.

    Args:
        name: name of the user, its access key.
        secret: its secret key.
        token: security token, if the user has one.
        nonce: what the server answered to ``NONCE_CODE`` on this connection.
    """

    def __init__(self, name: str, secret: str, token: str, nonce: str) -> None:
        self._names = {ACCESS_KEY: name, SECURITY_TOKEN: token} if token else {ACCESS_KEY: name}
        self._secret, self._nonce = secret, nonce
        self._counters = itertools.count(1)

    def sign(self, command: Command) -> None:
        """Add the user and the signature to the header of a request; an earlier signature is replaced."""
        fields = {**(to_ext_fields(command.header) or {}), **self._names}
        fields.pop(SIGNATURE, None)
        fields.pop(BOUND_SIGNATURE, None)
        counter = next(self._counters)
        digest = _digest(self._secret, self._nonce, command, counter, fields)
        command.header = {**fields, BOUND_SIGNATURE: f"{counter}.{digest}"}


def binder(name: str, secret: str, token: str = "") -> Callable[[str], Callable[[Command], None]]:
    """Return a function from the nonce of a connection to what signs its requests."""
    return lambda nonce: BoundSigner(name, secret, token, nonce).sign


class _Given(NamedTuple):
    counter: int
    digest: str


class Binding:
    """The server's end of one connection: its nonce, and the counters that were used."""

    __slots__ = ("_highest", "_seen", "nonce")

    def __init__(self) -> None:
        self.nonce = secrets.token_hex(16)
        self._highest = self._seen = 0

    def verifies(self, secret: str, command: Command) -> bool:
        """Return true if a request has a right ``BoundSignature`` and its counter was not used; it is used then.

        Args:
            secret: secret of the user.
            command: the request; its header has the texts of the ``extFields``.
        """
        fields: Mapping[str, str] = command.header
        found = _FORM.fullmatch(fields[BOUND_SIGNATURE])
        given = _Given(int(found[1]), found[2]) if found else _Given(0, "")
        signed = {name: value for name, value in fields.items() if name not in (SIGNATURE, BOUND_SIGNATURE)}
        expected = _digest(secret, self.nonce, command, given.counter, signed)
        # The counter is looked at last: whoever cannot sign uses up none.
        return hmac.compare_digest(expected, given.digest) and self._take(given.counter)

    def _take(self, counter: int) -> bool:
        ahead = counter - self._highest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _SEEN if ahead < _WINDOW else 1
            self._highest = counter
            return True
        if -ahead >= _WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
