"""User behind a request, for rights that depend on what a request finds.

The guard compares the names in a request. A handler that looks up a message by its offset asks about the topic of what
it has found: ``check`` for the request at hand, ``may_publish`` later, as for a producer that is to get a half message.
Each question is decided by the policies of its moment.

A rejection does not name the topic: the user may not know it. The broker's log does, with the command that allows it.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.policies import Action, Resource
from rocketbroker.auth.request_rights import Actions, topic_rights
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

_PUB: Final = (Action.PUB,)


class Requester:
    """A user at an address.

    Args:
        username: name of the user.
        address: IP address of the peer.
        cluster: name of the server's cluster.
        rules: returns users and policies of this moment.
        on_refusal: counts and logs a rejection.
        is_limited: a question may be answered with no; rights are checked.
        body: body of the request, if it was decoded for its rights.

    Attributes:
        joined: takes a heartbeat that was accepted, the groups of it that were registered, and all groups that the
            connection is in.
    """

    __slots__ = ("_address", "_body", "_cluster", "_on_refusal", "_rules", "is_limited", "joined", "username")

    def __init__(
        self,
        username: str,
        address: str,
        cluster: str,
        rules: Callable[[], AccessRules],
        on_refusal: Callable[[AuthorizationError], object],
        *,
        is_limited: bool = True,
        body: object = None,
    ) -> None:
        self.username: Final = username
        self.is_limited: Final = is_limited
        self._address = address
        self._body = body
        self._cluster = cluster
        self._rules = rules
        self._on_refusal = on_refusal
        self.joined: Callable[[HeartbeatData, Iterable[ConsumerData], Collection[str]], None] = _nothing_to_note

    @property
    def is_super(self) -> bool:
        """True while the user has every right."""
        user = self._rules().users.get(self.username)
        return user is not None and user.is_super

    def take_body(self) -> object:
        """Return the decoded body, if there is one, and forget it.

        Channels keep ``may_publish``, and so this object, as long as their groups. A peer chooses how large its bodies
        are.
        """
        body, self._body = self._body, None
        return body

    def check(self, what: str, topics: Iterable[str], actions: Actions, group: str = "") -> None:
        """Reject the request unless the user has one of the actions on one of the topics.

        Args:
            what: what was found, for the remark.
            topics: the topics by which it is known, its own first; the last one is that of the rejection.
            actions: the actions.
            group: group of the request, whose right was checked: its own retry topic needs no other.

        Raises:
            BrokerResponseError: NO_PERMISSION.
        """
        refusal: AuthorizationError | None = None
        for topic in topics:
            refusal = self._refusal(topic_rights(topic, actions, group))
            if refusal is None:
                return
        if refusal is None:
            raise ValueError(f"{what} has no topic")
        self._on_refusal(refusal)
        remark = (
            f"User:{self.username} has no permission to access {what} from {self._address}. It needs "
            f"{' or '.join(action.word for action in actions)} on its topic; the broker's log names "
            "the topic, with the command that allows it"
        )
        raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)

    def may_publish(self, topic: str) -> bool:
        """Return true if the user may send to a topic."""
        return self._refusal([Right(Resource.topic(topic), _PUB)]) is None

    def _refusal(self, rights: Iterable[Right]) -> AuthorizationError | None:
        if not self.is_limited:
            return None
        try:
            self._rules().check(self.username, rights, self._address, self._cluster)
        except AuthorizationError as error:
            return error
        return None


def _nothing_to_note(_heartbeat: HeartbeatData, _registered: Iterable[ConsumerData], _groups: Collection[str]) -> None:
    """Take a heartbeat where no guard keeps its rights."""
