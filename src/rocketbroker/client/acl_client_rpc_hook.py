"""Signatures of requests for clusters with access control (org.apache.rocketmq.acl.common.AclClientRPCHook)."""

import base64
import hashlib
import hmac
from typing import Any

from rocketbroker.client.errors import ClientError
from rocketbroker.client.mq_version import V4_9_3
from rocketbroker.client.options import CheckedStruct
from rocketbroker.codec.remoting.remoting_command import Command, to_ext_fields

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class SessionCredentials(CheckedStruct, frozen=True):
    """Name and secret of a user of a cluster with access control.

    Args:
        access_key: name of the user.
        secret_key: secret of the user; it signs requests and is not sent.
        security_token: token of a temporary user.
    """

    access_key: str
    secret_key: str
    security_token: str = ""

    def __post_init__(self) -> None:
        """Refuse an empty key.

        Raises:
            ClientError: a key is empty.
        """
        super().__post_init__()
        if not self.access_key or not self.secret_key:
            raise ClientError("access_key or secret_key is empty; give both, as the cluster has them")

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"SessionCredentials({self.access_key!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Hide the secret from rich, too."""
        return [("access_key", self.access_key)]


class AclClientRPCHook:
    """Signs requests by HmacSHA1, which brokers with ACL 1.0 or 2.0 check."""

    def __init__(self, credentials: SessionCredentials) -> None:
        self._names = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token:
            self._names[SECURITY_TOKEN] = credentials.security_token
        self._secret = credentials.secret_key.encode()

    def sign(self, command: Command) -> None:
        """Add the user and the signature to the header of a request."""
        fields = {**(to_ext_fields(command.header) or {}), **self._names}
        fields.pop(SIGNATURE, None)
        names = sorted(fields)
        if UNIQUE_KEY_QUERY in fields:
            # 4.9 leaves this field out of the signature; 5.x does so for clients up to 4.9.3 only.
            names.remove(UNIQUE_KEY_QUERY)
            command.version = V4_9_3
        # The values in the order of their names, then the body.
        content = "".join(map(fields.__getitem__, names)).encode()
        digest = hmac.new(self._secret, content, hashlib.sha1)
        digest.update(command.body)
        command.header = {**fields, SIGNATURE: base64.b64encode(digest.digest()).decode()}
