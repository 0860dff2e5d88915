"""Metadata of a call, such as client and deadline, and refusals that are answered in its body."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from rocketbroker.codec.message.topic_validator import (
    is_system_group,
    is_system_topic,
    validate_group,
    validate_topic,
)
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, RemotingCommand, from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RemotingError, RemotingTimeoutError, RocketBrokerError
from rocketbroker.proxy.messaging_pb2 import Code, Resource, Status

log = logging.getLogger(__name__)

H = TypeVar("H", bound=CommandCustomHeader)

OK = Status(code=Code.OK, message="OK")
_CODES: dict[int, Code] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


class StatusError(RocketBrokerError):
    """Refusal of a call, answered as Status in its body (GrpcProxyException).

    Attributes:
        delay_s: seconds for which the answer waited, so that the call does not count as a slow one.
        is_logged: it has its line in the log.
    """

    delay_s = 0.0
    is_logged = False

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class CallContext:
    """Metadata of a call (ProxyContext).

    Attributes:
        client_id: id of the client, never empty.
        language: language of the SDK, such as JAVA.
        client_version: version of the SDK.
        namespace: prefix of topics and groups, mostly empty.
        peer: ``ip:port`` of the client.
        deadline: time of the event loop at which the client stops waiting, or None.
        user: who signed the call; empty without access control.
        grant: raises BrokerResponseError once the user may not make the call any more; None without access control.
        refusal: returns the reason why the user may not make another call, None if it may; None without access control.
    """

    client_id: str
    language: str
    client_version: str
    namespace: str
    peer: str
    deadline: float | None
    user: str = ""
    grant: Callable[[], None] | None = None
    refusal: "Callable[[Message], StatusError | None] | None" = None


def call_context(metadata: Mapping[str, str | bytes], peer: str, deadline: float | None) -> CallContext:
    """Read the metadata of a call.

    Raises:
        StatusError: CLIENT_ID_REQUIRED if the client does not name itself.
    """
    client_id = metadata.get("x-mq-client-id")
    if not client_id:
        raise StatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty: send it as metadata x-mq-client-id")
    return CallContext(
        client_id=str(client_id),
        language=str(metadata.get("x-mq-language", "")),
        client_version=str(metadata.get("x-mq-client-version", "")),
        namespace=str(metadata.get("x-mq-namespace", "")),
        peer=peer,
        deadline=deadline,
    )


# -- answers


def status_of(error: Exception) -> Status:
    """Return the status that answers an error; log an unexpected one with its traceback."""
    match error:
        case StatusError():
            return Status(code=error.code, message=error.message)
        case BrokerResponseError():
            return Status(code=_CODES.get(error.code, Code.INTERNAL_SERVER_ERROR), message=error.remark)
        case RemotingTimeoutError():
            return Status(code=Code.PROXY_TIMEOUT, message=str(error))
        case RemotingError():
            pass  # A broker that is away is no error here, and a client may name one that never was.
        case _:
            log.error("a call failed", exc_info=error)
    return Status(code=Code.INTERNAL_SERVER_ERROR, message=f"{type(error).__name__}: {error}")


def status_of_all(statuses: Collection[Status]) -> Status:
    """Return the status of a call with several results: theirs if they agree, else MULTIPLE_RESULTS."""
    codes = {status.code for status in statuses}
    code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
    return Status(code=code, message=Code.Name(code))


async def awaited(answer: Command | Awaitable[Command]) -> Command:
    """Return the answer of ``ServiceManager.invoke``, whatever its code."""
    return answer if isinstance(answer, RemotingCommand) else await answer


async def succeeded(answer: Command | Awaitable[Command]) -> Command:
    """Return the answer of ``ServiceManager.invoke``.

    Raises:
        BrokerResponseError: It is not SUCCESS.
    """
    found = answer if isinstance(answer, RemotingCommand) else await answer
    if found.code != ResponseCode.SUCCESS:
        raise BrokerResponseError(found.code, found.remark or "")
    return found


def header_of(answer: Command, header_type: type[H]) -> H:
    """Return the header of an answer of ``ServiceManager.invoke``."""
    header = answer.header
    return header if isinstance(header, header_type) else from_ext_fields(header, header_type)


# -- names


def check_topic(topic: Resource) -> str:
    """Return the name of a topic that clients may use; namespaces do not change it, as in Apache's proxy.

    Raises:
        StatusError: ILLEGAL_TOPIC.
    """
    result = validate_topic(topic.name)
    if not result.valid:
        raise StatusError(Code.ILLEGAL_TOPIC, result.remark)
    if is_system_topic(topic.name):
        raise StatusError(Code.ILLEGAL_TOPIC, f"cannot access system topic {topic.name}; use a topic of your own")
    return topic.name


def check_group(group: Resource) -> str:
    """Return the name of a consumer group that clients may use.

    Raises:
        StatusError: ILLEGAL_CONSUMER_GROUP.
    """
    result = validate_group(group.name)
    if not result.valid:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, result.remark)
    if is_system_group(group.name):
        remark = f"cannot use system consumer group {group.name}; use a group of your own"
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, remark)
    return group.name
