"""Checks of credentials (DefaultAuthenticationContextBuilder and DefaultAuthenticationHandler).

Remoting requests carry AccessKey and Signature in their ``extFields``; ``codec.remoting.request_signature`` says what
is signed, and ``codec.remoting.bound_signature`` what our own clients may sign instead. Calls of the gRPC port carry,
as metadata:

    x-mq-date-time: <date>
    authorization:  MQv2-HMAC-SHA1 Credential=<name>[/...], SignedHeaders=x-mq-date-time, Signature=<hex>

where the signature is HMAC-SHA1(secret, date). As in Apache's proxy the date is not compared with the clock, so a
signature is good for as long as the secret is.

A wrong name and a wrong secret give the same answer after the same work. A disabled user is named as such only to
someone who has its secret.
"""

import hmac
import secrets
from collections.abc import Mapping
from shlex import quote
from typing import Final

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthenticationError
from rocketbroker.auth.users import MAX_NAME_LENGTH, User
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE, NONCE_CODE, Binding
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_signature import ACCESS_KEY, SIGNATURE, SigningKey

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
ALGORITHM: Final = "MQv2-HMAC-SHA1"


class Authenticator:
    """Checks requests by the secrets of one ``AccessRules``, whose keys it prepares once.

    Args:
        rules: users and policies; ``follow`` replaces them.
    """

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._keys: dict[str, tuple[str, SigningKey]] = {}
        # Signs for users that do not exist, so that their answers take as long.
        self._nobodys = secrets.token_hex(16)
        self._nobody = SigningKey(self._nobodys)

    def follow(self, rules: AccessRules) -> None:
        """Check by other rules from now on."""
        self._rules = rules
        # Only keys of secrets that did not change are right; an unchanged one costs nothing to keep.
        self._keys = {
            name: (secret, key)
            for name, (secret, key) in self._keys.items()
            if (user := rules.users.get(name)) is not None and user.secret == secret
        }

    def authenticate(self, command: Command, binding: Binding | None = None) -> User:
        """Return the user that signed a remoting request.

        Args:
            command: the request; its header has the texts of the ``extFields``, all as they were received.
            binding: nonce and counters of its connection, if its client has asked for them.

        Raises:
            AuthenticationError: It is not signed, not by a user, or by one that is disabled.
        """
        fields: Mapping[str, str] | None = command.header
        name = (fields or {}).get(ACCESS_KEY, "")
        if fields is None or not name:
            raise AuthenticationError(
                "username cannot be null. The request is not signed: give the client the access key and the secret key "
                "of a user"
            )
        if BOUND_SIGNATURE in fields:
            return self._checked(name, self._is_bound(name, command, binding))
        signature = fields.get(SIGNATURE, "")
        return self._checked(name, self.key_of(name).verifies(signature, fields, command.version, command.body))

    def key_of(self, name: str) -> SigningKey:
        """Return the key of a user; one that nobody has for a name that is unknown, so that its check takes as long."""
        user = self._rules.users.get(name)
        if user is None:
            return self._nobody
        held = self._keys.get(name)
        if held is None:
            held = self._keys[name] = user.secret, SigningKey(user.secret)
        return held[1]

    def authenticate_call(self, metadata: Mapping[str, str]) -> User:
        """Return the user that signed a call of the gRPC port.

        Args:
            metadata: of the call, with names in small letters.

        Raises:
            AuthenticationError: It is not signed, not by a user, or by one that is disabled.
        """
        authorization = metadata.get(AUTHORIZATION, "")
        if not authorization:
            raise AuthenticationError(
                "username cannot be null. The call is not signed: give the client the access key and the secret key of "
                "a user"
            )
        date = metadata.get(DATE_TIME, "")
        if not date:
            raise AuthenticationError(f"datetime is null. The call has no {DATE_TIME}, which its signature covers")
        algorithm, _, rest = authorization.partition(" ")
        if algorithm != ALGORITHM:
            raise AuthenticationError(
                f"authentication header is incorrect. It begins with {algorithm[:32]!a}, not {ALGORITHM}"
            )
        items = dict(item.strip().partition("=")[::2] for item in rest.split(","))
        name = items.get("Credential", "").partition("/")[0]
        if not name:
            raise AuthenticationError("username cannot be null. The authorization of the call has no Credential")
        try:
            given = bytes.fromhex(items.get("Signature", ""))
        except ValueError:
            given = b""
        expected = self.key_of(name).digest(date.encode("utf-8", "replace"))
        return self._checked(name, hmac.compare_digest(expected, given))

    def _is_bound(self, name: str, command: Command, binding: Binding | None) -> bool:
        if binding is None:
            raise AuthenticationError(
                f"{BOUND_SIGNATURE}: this connection has no nonce. Ask for it by request code {NONCE_CODE} first",
                name,
            )
        user = self._rules.users.get(name)
        return binding.verifies(self._nobodys if user is None else user.secret, command)

    def _checked(self, name: str, is_signed: bool) -> User:
        user = self._rules.users.get(name)
        if user is None or not is_signed:
            shown = name if name.isascii() and name.isprintable() else ascii(name)
            raise AuthenticationError(
                f"User:{shown[:MAX_NAME_LENGTH]}: check signature failed. No user of this name has the secret that "
                "signed the request",
                name,
            )
        if not user.is_enabled:
            raise AuthenticationError(
                f"User:{name} is disabled. To enable it: mqadmin updateUser {self._rules.option} -u {quote(name)} "
                "-s enable",
                name,
            )
        return user
