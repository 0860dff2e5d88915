"""Users of a server for development: an administrator and others, with secrets that are given or made for the run."""

import json
import secrets
from collections.abc import Mapping
from typing import Final

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.policies import Acl, parse_acl
from rocketbroker.auth.users import User, new_user
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketbroker.common.errors import ConfigError

ADMIN: Final = "admin"
DEMO: Final = "demo"
_INNER: Final = "inner"


class FirstUsers:
    """Users that exist when a server is ready.

    Args:
        users: secrets by name.
        policies: by name of a user, actions by resource: ``{"shop": {"Topic:orders": "Pub,Sub"}}``.

    Attributes:
        secrets: secrets by name, with that of the administrator.
        properties: settings of the servers by RocketMQ's names.

    Raises:
        ConfigError: A user or a policy is not valid.
    """

    def __init__(self, users: Mapping[str, str], policies: Mapping[str, Mapping[str, str]]) -> None:
        for name in (ADMIN, _INNER):
            if name in users:
                raise ConfigError(f"users: {name} is a user of the server itself; choose another name")
        if unknown := sorted(policies.keys() - users.keys()):
            raise ConfigError(f"policies: there is no user {unknown[0]}; give its secret in users")
        self.secrets = {**users, ADMIN: secrets.token_urlsafe(16)}
        try:
            self._users: list[User] = [new_user(UserInfo(name, secret)) for name, secret in users.items()]
            self._acls = [_acl(name, rights) for name, rights in policies.items() if rights]
        except AuthValueError as error:
            raise ConfigError(str(error)) from None
        inner = secrets.token_urlsafe(16)
        self.properties = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": json.dumps({"username": ADMIN, "password": self.secrets[ADMIN]}),
            "innerClientAuthenticationCredentials": json.dumps({"accessKey": _INNER, "secretKey": inner}),
        }

    @classmethod
    def demo(cls) -> "FirstUsers":
        """Return an administrator, and a user that may send and consume."""
        rights = {"Topic:*": "Pub,Sub", "Group:*": "Sub"}
        return cls({DEMO: secrets.token_urlsafe(16)}, {DEMO: rights})

    async def create(self, store: AccessStore) -> None:
        """Create those that do not exist.

        Raises:
            AuthError: The table cannot be written.
        """
        await store.add_missing(self._users, self._acls)


def _acl(name: str, rights: Mapping[str, str]) -> Acl:
    entries = [
        PolicyEntryInfo(resource, [action.strip() for action in actions.split(",")], None, "Allow")
        for resource, actions in rights.items()
    ]
    return parse_acl(f"User:{name}", AclInfo(policies=[PolicyInfo("Custom", entries)]))
