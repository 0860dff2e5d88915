"""Questions to ask after the check of a request: by its handler, when its turn comes, and while its client is a member.

The guard makes them of what it has checked, a ``CheckedRequest``. Each is decided by the policies of its moment.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.grants import Grant, Members
from rocketbroker.auth.refusals import Refusals
from rocketbroker.auth.request_rights import RequestRights, member_rights
from rocketbroker.auth.requester import Requester
from rocketbroker.auth.users import User
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError


class CheckedRequest(NamedTuple):
    """A request that may be served, as it was checked.

    Attributes:
        user: who signed it.
        code: its request code.
        fields: texts of its ``extFields``.
        body: its body.
        connection: its connection.
        asks_right: its rights were checked, too.
    """

    user: User
    code: int
    fields: dict[str, str] | None
    body: ReadableBuffer
    connection: Connection
    asks_right: bool

    @property
    def address(self) -> str:
        """IP address of the peer."""
        return host_of(self.connection.remote_address)


class RequestGrants:
    """Makes grants and requesters.

    Args:
        rules: returns users and policies of the moment.
        rights: rights that each code needs.
        refusals: takes each rejection.

    Attributes:
        members: connections of clients in groups.
    """

    def __init__(self, rules: Callable[[], AccessRules], rights: RequestRights, refusals: Refusals) -> None:
        self._rules = rules
        self._rights = rights
        self._refusals = refusals
        self.members: Final = Members()

    def grant_of(self, checked: CheckedRequest, version: int | None = None) -> Grant:
        """Return the grant of a request, whose body is read for its rights.

        Args:
            checked: the request.
            version: version of the policies by which it was checked, if they may have changed since.

        Raises:
            BrokerResponseError: The body names too much.
            CodecError: The body cannot be read.
        """
        rights = self._rights.of(checked.code, checked.fields, checked.body) if checked.asks_right else ()
        return self.grant_with(checked, rights, version)

    def grant_in_turn(self, checked: CheckedRequest) -> Callable[[], None]:
        """Return the grant of a request that waits for its turn.

        Most begin under the policies by which they were checked, and need no second look at their bodies.
        """
        return partial(self._ask_later, checked, self._rules().version)

    def requester(self, checked: CheckedRequest, body: object = None) -> Requester:
        """Return the user for the questions of a handler, with its decoded body, if the check has decoded it."""
        limited = checked.asks_right and not self._rights.as_apache
        cluster, refused = self._rights.system_cluster, self._on_refusal(checked)
        made = Requester(
            checked.user.name, checked.address, cluster, self._rules, refused, is_limited=limited, body=body
        )
        # A channel keeps the requester as long as its groups, and a peer chooses how long its fields and bodies are.
        made.joined = partial(self._joined, checked._replace(fields=None, body=b""))
        return made

    def grant_with(self, checked: CheckedRequest, rights: Collection[Right], version: int | None = None) -> Grant:
        """Return the grant of a request that needs some rights; its fields and its body are not read."""
        cluster, refused = self._rights.system_cluster, self._on_refusal(checked)
        return Grant(checked.user, rights, checked.address, self._rules, refused, cluster, version=version)

    def _ask_later(self, checked: CheckedRequest, version: int) -> None:
        """Ask the grant of a request whose turn has come, if policies have changed since they had a version.

        Raises:
            BrokerResponseError: As for a grant.
        """
        if self._rules().version == version:
            return
        try:
            grant = self.grant_of(checked, version)
        except CodecError as error:
            # Nobody has read the body yet: it came from a Super user.
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        grant()

    def _joined(
        self,
        checked: CheckedRequest,
        heartbeat: HeartbeatData,
        registered: Iterable[ConsumerData],
        groups: Collection[str],
    ) -> None:
        """Keep the rights of a heartbeat, for each of its groups that was registered."""

        def joined(group: str, rights: Iterable[Right]) -> None:
            grant = self.grant_with(checked, frozenset(rights) if checked.asks_right else ())
            self.members.joined(checked.connection, group, grant, keeps_subscriptions=heartbeat.without_sub)

        joined("", ())
        for consumer in registered:
            joined(consumer.group_name, member_rights(consumer, as_apache=self._rights.as_apache))
        self.members.stayed(checked.connection, groups)

    def _on_refusal(self, checked: CheckedRequest) -> Callable[..., object]:
        return partial(self._refusals.add, request=checked.code, peer=checked.connection.remote_address)
