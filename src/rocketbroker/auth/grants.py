"""Rights of work that outlives the check of its request: requests that wait, and members of groups.

A request is checked when it comes. A pull may be held for half a minute after that. Work that waits for its turn begins
as late as its peer likes. A client that joined a group by a heartbeat is sent messages to verify and transactions to
decide until its next heartbeat is missed. So each keeps the ``Grant`` that it was served by. It is asked again when
policies have changed, before a held request is answered, and before work begins.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.users import User
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

# Rights asked in one turn of the event loop, at some 5 µs each. A grant may have as many as a client has subscriptions.
_MOST_ASKED: Final = 256


class Grant:
    """Rights under which a request was served.

    Args:
        user: who signed it, as the user was then.
        rights: rights that it needs; none if any user may send it.
        address: IP address of the peer.
        rules: returns the policies of this moment.
        on_refusal: counts and logs a rejection.
        cluster: as for ``AccessRules.check``.
        version: version of the policies by which it was served, if they may have changed since.
    """

    __slots__ = ("_address", "_cluster", "_on_refusal", "_rights", "_rules", "_version", "user")

    def __init__(
        self,
        user: User,
        rights: Collection[Right],
        address: str,
        rules: Callable[[], AccessRules],
        on_refusal: Callable[[AuthorizationError], object],
        cluster: str = "",
        *,
        version: int | None = None,
    ) -> None:
        self.user = user
        self._rights = rights
        self._address = address
        self._rules = rules
        self._on_refusal = on_refusal
        self._cluster = cluster
        self._version = rules().version if version is None else version

    @property
    def size(self) -> int:
        """Number of rights."""
        return len(self._rights)

    def __call__(self) -> None:
        """Check the rights again if policies have changed.

        Raises:
            BrokerResponseError: NO_PERMISSION; the user has lost a right, is disabled, or has another secret or none.
        """
        rules = self._rules()
        if rules.version == self._version:
            return
        try:
            self._check(rules)
        except AuthorizationError as error:
            self._on_refusal(error)
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, str(error)) from None
        self._version = rules.version

    def _check(self, rules: AccessRules) -> None:
        name = self.user.name
        now = rules.users.get(name)
        if now is not None and now.secret != self.user.secret:
            raise AuthorizationError(f"User:{name} has another secret now. Sign requests by that", name)
        rules.check(name, self._rights, self._address, self._cluster)


class Members:
    """Connections whose clients are in groups, with the grants by which they joined.

    There is one for each user and group: a heartbeat for other groups, or for none, takes nothing from those before.
    The empty name stands for no group: a client without one has to be a user, too.
    """

    def __init__(self) -> None:
        self._grants: dict[Connection, dict[tuple[str, str], Grant]] = {}
        self._to_ask: deque[tuple[Connection, tuple[str, str], Grant]] = deque()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._grants)

    def joined(self, connection: Connection, group: str, grant: Grant, *, keeps_subscriptions: bool = False) -> None:
        """Note the grant of a heartbeat that the server has accepted.

        Args:
            connection: the client.
            group: a group that it is in now.
            grant: rights on the group and its topics.
            keeps_subscriptions: the topics of the heartbeat before still count (``withoutSub``), and so does its grant.
        """
        grants, key = self._grants.setdefault(connection, {}), (grant.user.name, group)
        if not (keeps_subscriptions and key in grants):
            grants[key] = grant

    def left(self, connection: Connection, group: str) -> None:
        """Forget the grants of a group that a client has left."""
        grants = self._grants.get(connection, {})
        for key in [key for key in grants if group and key[1] == group]:
            del grants[key]

    def stayed(self, connection: Connection, groups: Collection[str]) -> None:
        """Forget the grants of all groups but those that a client is in."""
        grants = self._grants.get(connection, {})
        for key in [key for key in grants if key[1] and key[1] not in groups]:
            del grants[key]

    def on_close(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._grants.pop(connection, None)

    def ask(self) -> None:
        """Close the connections whose users have lost what their groups need, some rights in each turn of the loop."""
        is_asking = bool(self._to_ask)
        self._to_ask = deque(
            (connection, key, grant) for connection, grants in self._grants.items() for key, grant in grants.items()
        )
        if self._to_ask and not is_asking:
            asyncio.get_running_loop().call_soon(self._ask_some)

    def _ask_some(self) -> None:
        asked = 0
        while self._to_ask and asked < _MOST_ASKED:
            connection, key, grant = self._to_ask.popleft()
            asked += 1 + grant.size
            if self._grants.get(connection, {}).get(key) is not grant:
                continue
            try:
                grant()
            except BrokerResponseError as error:
                # It is in groups by rights that are gone, and the broker would send it messages of theirs.
                connection.close(error.remark)
        if self._to_ask:
            asyncio.get_running_loop().call_soon(self._ask_some)
