"""Check of each call before its method (AuthenticationPipeline and AuthorizationPipeline of Apache's proxy).

A call needs the rights on the names in its request, by ``_ROWS``. Beside those of Apache's proxy, each message of a
send counts, not the first alone; a heartbeat with a group needs Sub on it, whatever the client calls itself; and a
change of the invisible time needs Sub on the topic, too.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Never

from google.protobuf.message import Message

from rocketbroker.auth.authorization import Right
from rocketbroker.auth.errors import AuthenticationError, RefusalError
from rocketbroker.auth.policies import Action, Resource
from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.proxy.call_context import StatusError
from rocketbroker.proxy.messaging_pb2 import Code

_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)


def _method(request: Message) -> str:
    """Return the name of the method that a request is for; settings, which a stream brings, have their own."""
    return request.DESCRIPTOR.name.removesuffix("Request")


def _topic(resource: Any, actions: tuple[Action, ...]) -> Right:
    """Return the right for a topic; a retry topic counts as its group."""
    name: str = resource.name
    if name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return Right(Resource.group(name), tuple(action for action in actions if action is not Action.PUB) or _SUB)
    return Right(Resource.topic(name), actions)


def _group(resource: Any) -> Right:
    return Right(Resource.group(resource.name), _SUB)


def _send(request: Any) -> Iterator[Right]:
    names = {message.topic.name: message.topic for message in request.messages}
    return (_topic(topic, _PUB) for topic in names.values())


def _publish(request: Any) -> Iterable[Right]:
    return [_topic(request.topic, _PUB)]


def _consume(request: Any) -> Iterable[Right]:
    return [_group(request.group), _topic(request.topic, _SUB)]


def _receive(request: Any) -> Iterable[Right]:
    return [_group(request.group), _topic(request.message_queue.topic, _SUB)]


def _member(request: Any) -> Iterable[Right]:
    return [_group(request.group)] if request.group.name else []


def _route(request: Any) -> Iterable[Right]:
    return [_topic(request.topic, (Action.PUB, Action.SUB, Action.GET))]


def _telemetry(command: Any) -> Iterator[Right]:
    for topic in command.settings.publishing.topics:
        yield _topic(topic, _PUB)
    subscription = command.settings.subscription
    if subscription.group.name:
        yield _group(subscription.group)
    for entry in subscription.subscriptions:
        yield _topic(entry.topic, _SUB)


_ROWS: Final[Mapping[str, Callable[[Any], Iterable[Right]]]] = {
    "SendMessageRequest": _send,
    "RecallMessageRequest": _publish,
    "EndTransactionRequest": _publish,
    "ReceiveMessageRequest": _receive,
    "AckMessageRequest": _consume,
    "ChangeInvisibleDurationRequest": _consume,
    "ForwardMessageToDeadLetterQueueRequest": _consume,
    "HeartbeatRequest": _member,
    "NotifyClientTerminationRequest": _member,
    "QueryRouteRequest": _route,
    "QueryAssignmentRequest": _consume,
    "TelemetryCommand": _telemetry,
}


def rights_of(request: Message) -> list[Right]:
    """Return the rights that a request needs; it needs each of them.

    Raises:
        KeyError: It is no request of the service.
    """
    return list(_ROWS[request.DESCRIPTOR.name](request))


def _status_of(error: RefusalError) -> StatusError:
    """Return the answer to a refusal that was noted, and so logged."""
    status = StatusError(Code.UNAUTHORIZED if isinstance(error, AuthenticationError) else Code.FORBIDDEN, str(error))
    status.is_logged = True
    return status


class CallGrant:
    """Rights by which a call is served, for one that waits: asked again when policies have changed.

    Args:
        guard: check of calls.
        metadata: of the call.
        request: its request.
        peer: ``ip:port`` of the client.
    """

    def __init__(self, guard: "CallGuard", metadata: Mapping[str, str | bytes], request: Message, peer: str) -> None:
        self._guard = guard
        self._call = metadata, request, peer
        self._version = guard.version

    def refusal(self) -> StatusError | None:
        """Return the reason why the call may not be served any more, ``None`` if it may."""
        version = self._guard.version
        refusal = None if version == self._version else self._guard.refusal(*self._call)
        if refusal is None:
            self._version = version
        return refusal

    def __call__(self) -> None:
        """Check the call again, for a broker that holds a pop of it.

        Raises:
            BrokerResponseError: NO_PERMISSION.
        """
        if (refusal := self.refusal()) is not None:
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, refusal.message)


class CallGuard:
    """Checks calls by the users and policies of a server.

    Args:
        guard: check of the server's requests.
        problem: returns the reason why no users are known, if that is so.
    """

    def __init__(self, guard: RequestGuard, problem: Callable[[], str] = lambda: "") -> None:
        self._guard = guard
        self._problem = problem
        self.on_change = guard.on_change

    @property
    def version(self) -> int:
        """Number of the policies in force; it grows with each change."""
        return self._guard.version

    def check(self, metadata: Mapping[str, str | bytes], request: Message, peer: str) -> str | asyncio.Future[Never]:
        """Check who signed a call, and if that user may send it; return the name of the user.

        A failure of the signature is answered late: a future, returned in place of the name, raises the refusal then.
        The caller must drop the request and its bytes before it waits. A thousand refusals may wait, and a peer chooses
        how large its requests are.

        Args:
            metadata: of the call.
            request: its request.
            peer: ``ip:port`` of the client.

        Raises:
            StatusError: UNAUTHORIZED without a signature of a user, FORBIDDEN without a right, INTERNAL_SERVER_ERROR
                while no users are known.
        """
        try:
            return self._check(metadata, request, peer)
        except RefusalError as error:
            refusals, refusal = self._guard.refusals, _status_of(error)
            delay_s = refusals.add(error, _method(request), peer)
            # grpcio closes no single connection: a call beyond the bounds fails at once.
            waiting = refusals.late_answers.hold(host_of(peer), delay_s, refusal) if delay_s else None
            if waiting is None:
                raise refusal from None
            refusal.delay_s = delay_s
            return waiting

    def refusal(self, metadata: Mapping[str, str | bytes], request: Message, peer: str) -> StatusError | None:
        """Return the reason why a call that was served may not be any more, ``None`` if it may."""
        try:
            self._check(metadata, request, peer)
        except RefusalError as error:
            # No failed attempt: the signature was right when the call came.
            self._guard.refusals.add(error, _method(request), peer, is_attempt=False)
            return _status_of(error)
        except StatusError as error:
            return error
        return None

    def _check(self, metadata: Mapping[str, str | bytes], request: Message, peer: str) -> str:
        if problem := self._problem():
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR, f"access control: users and policies are not known yet: {problem}"
            )
        texts = {name: value for name, value in metadata.items() if isinstance(value, str)}
        return self._guard.check_call(texts, lambda: rights_of(request), host_of(peer)).name
