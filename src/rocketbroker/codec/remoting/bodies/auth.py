"""Users and policies of access control 2.0, as requests 3001 to 3010 carry them."""

from typing import Any

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable


class UserInfo(RemotingSerializable):
    """User (3001, 3002, 3004, 3005); an update leaves fields that are ``None`` as they are.

    ``user_type`` is ``Super`` or ``Normal``, ``user_status`` ``enable`` or ``disable``, in any case of letters.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        """Hide the password."""
        return f"UserInfo({self.username!r}, user_type={self.user_type!r}, user_status={self.user_status!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Hide the password from rich, too."""
        return [("username", self.username), ("user_type", self.user_type), ("user_status", self.user_status)]


class PolicyEntryInfo(RemotingSerializable):
    """Decision (``Allow`` or ``Deny``) for actions on one resource, such as ``Topic:orders*``."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(RemotingSerializable):
    """Entries of one type, ``Custom`` or ``Default``."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(RemotingSerializable):
    """All policies of a subject, ``User:<name>`` (3006, 3007, 3009, 3010)."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
