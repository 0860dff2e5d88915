"""Users and policies of brokers, for a server that keeps none (ProxyAuthenticationMetadataProvider and its sibling).

Apache's proxy asks a broker for each user and its policies, by 3004 and 3009, which answer passwords in clear. Brokers
of this project answer none. They give a copy of their table, with secrets sealed by the key that both derive from the
inner credentials, as they do for a slave.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rocketbroker.auth.access_store import AccessTable, state_of
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthValueError
from rocketbroker.auth.policies import Acl, parse_acl
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, new_user
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo

log = logging.getLogger(__name__)


class CopiedUsers(NamedTuple):
    """Users and policies of one broker; ``version`` has time and number of the last change, zeros at Apache's."""

    users: Mapping[str, User]
    acls: Mapping[str, Acl]
    version: tuple[int, int] = (0, 0)


def users_of_copy(body: bytes, seal: SecretSeal) -> CopiedUsers:
    """Return the users and policies of a copy.

    Args:
        body: answer to AUTH_LIST_USER with the id of the key.
        seal: seals secrets in copies.

    Raises:
        CodecError: It is no copy, or was sealed by another key.
    """
    state = state_of(AccessTable.decode(body), seal)
    return CopiedUsers(state.users, state.acls, (state.version.timestamp, state.version.counter))


def users_of_lists(users: Sequence[UserInfo], acls: Sequence[AclInfo]) -> CopiedUsers:
    """Return the users and policies that a broker of Apache answers to AUTH_LIST_USER and AUTH_LIST_ACL.

    A user is left out, and so has no right, if it or its policies are not valid here.
    """
    known: dict[str, User] = {}
    policies: dict[str, Acl] = {}
    by_subject = {acl.subject: acl for acl in acls}
    for info in users:
        try:
            user = new_user(info)
            given = by_subject.get(f"User:{user.name}")
            if given is not None and given.policies:
                policies[user.name] = parse_acl(given.subject, given)
        except AuthValueError as error:
            log.warning("access control: a user of the brokers is left out: %s", error)
            continue
        known[user.name] = user
    return CopiedUsers(known, policies)


class AccessCopy:
    """Rules of the broker that is followed, in memory.

    Attributes:
        rules: users and policies in force; none before the first copy.
    """

    def __init__(self) -> None:
        self.rules = AccessRules()
        self._listeners: list[Callable[[AccessRules], None]] = []

    def on_change(self, listener: Callable[[AccessRules], None]) -> None:
        """Call ``listener`` with each new rules."""
        self._listeners.append(listener)

    def differs(self, found: CopiedUsers) -> bool:
        """Return true if the users and policies are not those in force."""
        return bool(found.users != self.rules.users or found.acls != self.rules.acls)

    def publish(self, rules: AccessRules) -> None:
        """Put rules into force, which may have been made on a thread."""
        self.rules = rules
        for listener in self._listeners:
            listener(rules)
