"""Errors of the clients: one branch of the tree in common/errors.py.

RocketBrokerError
├── BrokerResponseError          answer other than success
│   └── BrokerAnswerError        ... with a known code; a class for each (client.broker_errors)
└── ClientError                  failure of a client operation (MQClientException)
    ├── ClientStateError         client not started, or closed
    ├── InvalidMessageError      invalid message, topic or group
    ├── OptionError              unknown argument, or a value that is not allowed
    ├── TopicRouteError          no route for the topic
    ├── BrokerNotFoundError      no address for a broker of the route
    ├── NameServerError          no name server answered
    ├── AllocationError          queues cannot be allocated to the members of a group
    ├── SubscriptionError        consumers of one group in this process differ in their subscriptions
    ├── HandlerError             a handler that cannot be called with one message, or returns a wrong value
    ├── RequestTimeoutError      no reply to a request in time
    └── SendFailedError          all tries of a send failed; ``causes`` has the errors
"""

from collections.abc import Sequence
from typing import ClassVar

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, ConfigError, RocketBrokerError


class ClientError(RocketBrokerError):
    """Failure of a client operation."""


class ClientStateError(ClientError):
    """Use of a client before its start or after its close."""


class InvalidMessageError(ClientError, ValueError):
    """Invalid message, topic or group; the text names the rule."""


class OptionError(ClientError, ConfigError, ValueError):
    """Unknown argument of a client, or a value that is not allowed; the text says what to give."""


class TopicRouteError(ClientError):
    """No name server has a route for the topic."""


class BrokerNotFoundError(ClientError):
    """A broker of the route has no address."""


class NameServerError(ClientError):
    """No name server answered."""


class AllocationError(ClientError, ValueError):
    """A strategy cannot allocate queues to the members of a group."""


class SubscriptionError(ClientError):
    """Consumers of one group in this process differ in their subscriptions."""


class HandlerError(ClientError, TypeError):
    """A handler cannot be called with one message, or returns a wrong value."""


class RequestTimeoutError(ClientError):
    """A request was stored, and no reply arrived in time."""


class SendFailedError(ClientError):
    """All tries of a send failed; ``causes`` has their errors in order."""

    def __init__(self, text: str, causes: Sequence[Exception]) -> None:
        super().__init__(text)
        self.causes = tuple(causes)


# Errors for answers of brokers and name servers: one class for each code.
#
# Each is a BrokerResponseError with ``code``, ``remark`` (the server's text) and ``hint``, which a traceback shows as a
# note.

_classes: dict[int, type["BrokerAnswerError"]] = {}


class BrokerAnswerError(BrokerResponseError):
    """Answer with a known code; ``hint`` says what to do."""

    hint: ClassVar[str]

    def __init_subclass__(cls, code: ResponseCode, hint: str) -> None:
        """Make a class the error of a code."""
        super().__init_subclass__()
        cls.hint = hint
        _classes[int(code)] = cls


def broker_error(code: int, remark: str | None) -> BrokerResponseError:
    """Return the error for an answer; a plain BrokerResponseError for an unknown code."""
    kind = _classes.get(code)
    if kind is None:
        return BrokerResponseError(code, remark or "")
    error = kind(code, remark or "")
    error.add_note(f"{ResponseCode(code).name}: {kind.hint}")
    return error


class ServerFaultError(
    BrokerAnswerError, code=ResponseCode.SYSTEM_ERROR, hint="the remark has the reason; the server's log may have more"
):
    """The server failed, or refused for the reason in its remark."""


class SystemBusyError(
    BrokerAnswerError, code=ResponseCode.SYSTEM_BUSY, hint="retry later, or send fewer messages at a time"
):
    """The server has too much to do, or its disk is slow."""


class RequestCodeNotSupportedError(
    BrokerAnswerError,
    code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    hint="check that the address is that of a broker or of a name server, as the call needs, and its version",
):
    """The server does not know the request."""


class TransactionFailedError(
    BrokerAnswerError,
    code=ResponseCode.TRANSACTION_FAILED,
    hint="the broker checks the transaction later; answer in the producer's check",
):
    """The server could not end the transaction."""


class FlushDiskTimeoutError(
    BrokerAnswerError,
    code=ResponseCode.FLUSH_DISK_TIMEOUT,
    hint="do not send it again without a key that shows duplicates; look at the broker's disk",
):
    """The message was stored, and not flushed in time."""


class SlaveNotAvailableError(
    BrokerAnswerError,
    code=ResponseCode.SLAVE_NOT_AVAILABLE,
    hint="start the slave, or set the broker's brokerRole to ASYNC_MASTER",
):
    """The message was stored, and there is no slave to copy it to."""


class FlushSlaveTimeoutError(
    BrokerAnswerError,
    code=ResponseCode.FLUSH_SLAVE_TIMEOUT,
    hint="do not send it again without a key that shows duplicates; look at the slave",
):
    """The message was stored, and not copied to the slave in time."""


class MessageIllegalAnswerError(
    BrokerAnswerError,
    code=ResponseCode.MESSAGE_ILLEGAL,
    hint="check topic, size, properties and delay against the remark",
):
    """The server does not store such a message."""


class ServiceNotAvailableError(
    BrokerAnswerError,
    code=ResponseCode.SERVICE_NOT_AVAILABLE,
    hint="retry later; the remark says what is wrong, such as a full disk",
):
    """The server starts, stops, or does not store messages."""


class VersionNotSupportedError(BrokerAnswerError, code=ResponseCode.VERSION_NOT_SUPPORTED, hint="update the server"):
    """The server cannot serve this version of the client."""


class NoPermissionError(
    BrokerAnswerError,
    code=ResponseCode.NO_PERMISSION,
    hint="check credentials, the topic's perm, and whether the group may consume",
):
    """The user, topic or group lacks the right."""


class TopicNotExistError(
    BrokerAnswerError,
    code=ResponseCode.TOPIC_NOT_EXIST,
    hint="create it, or set autoCreateTopicEnable=true in the broker",
):
    """The topic does not exist."""


class TopicExistAlreadyError(
    BrokerAnswerError, code=ResponseCode.TOPIC_EXIST_ALREADY, hint="choose another name, or update the topic"
):
    """The topic exists."""


class PullNotFoundError(
    BrokerAnswerError, code=ResponseCode.PULL_NOT_FOUND, hint="pull again, with time for the broker to wait"
):
    """The queue has no new message."""


class PullRetryImmediatelyError(
    BrokerAnswerError, code=ResponseCode.PULL_RETRY_IMMEDIATELY, hint="pull again from the next offset"
):
    """No message passed the filter."""


class PullOffsetMovedError(
    BrokerAnswerError, code=ResponseCode.PULL_OFFSET_MOVED, hint="continue at the offset in the answer"
):
    """The offset does not exist."""


class QueryNotFoundError(
    BrokerAnswerError, code=ResponseCode.QUERY_NOT_FOUND, hint="check the name, key or time range"
):
    """The server knows nothing by that name, key or offset."""


class SubscriptionParseFailedError(
    BrokerAnswerError,
    code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    hint="correct the expression; the remark names the place",
):
    """The server cannot read the filter."""


class SubscriptionNotExistError(
    BrokerAnswerError,
    code=ResponseCode.SUBSCRIPTION_NOT_EXIST,
    hint="wait for the next heartbeat, and give all members of the group the same subscriptions",
):
    """The server does not know that the group subscribes to the topic."""


class SubscriptionNotLatestError(
    BrokerAnswerError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST, hint="wait for the next heartbeat"
):
    """The server has an older subscription of the group."""


class SubscriptionGroupNotExistError(
    BrokerAnswerError,
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    hint="create it, or set autoCreateSubscriptionGroup=true in the broker",
):
    """The group does not exist."""


class FilterDataNotExistError(
    BrokerAnswerError, code=ResponseCode.FILTER_DATA_NOT_EXIST, hint="wait for the next heartbeat"
):
    """The server has no compiled filter of the group."""


class FilterDataNotLatestError(
    BrokerAnswerError, code=ResponseCode.FILTER_DATA_NOT_LATEST, hint="wait for the next heartbeat"
):
    """The server has an older filter of the group."""


class InvalidParameterError(
    BrokerAnswerError, code=ResponseCode.INVALID_PARAMETER, hint="correct the value that the remark names"
):
    """A value of the request is invalid."""


class TransactionShouldCommitError(
    BrokerAnswerError, code=ResponseCode.TRANSACTION_SHOULD_COMMIT, hint="answer the broker's check"
):
    """The transaction was rolled back and should be committed."""


class TransactionShouldRollbackError(
    BrokerAnswerError, code=ResponseCode.TRANSACTION_SHOULD_ROLLBACK, hint="answer the broker's check"
):
    """The transaction was committed and should be rolled back."""


class TransactionStateUnknownError(
    BrokerAnswerError, code=ResponseCode.TRANSACTION_STATE_UNKNOW, hint="answer the broker's check"
):
    """The outcome of the transaction is unknown."""


class TransactionStateGroupWrongError(
    BrokerAnswerError, code=ResponseCode.TRANSACTION_STATE_GROUP_WRONG, hint="end it by a producer of its group"
):
    """The transaction belongs to another producer group."""


class NoBuyerIdError(BrokerAnswerError, code=ResponseCode.NO_BUYER_ID, hint="add it, or send to another unit"):
    """The message lacks the buyer's id that the unit needs."""


class NotInCurrentUnitError(
    BrokerAnswerError, code=ResponseCode.NOT_IN_CURRENT_UNIT, hint="send it to the brokers of its unit"
):
    """The message belongs to another unit."""


class ConsumerNotOnlineError(
    BrokerAnswerError, code=ResponseCode.CONSUMER_NOT_ONLINE, hint="start a consumer of the group"
):
    """The group has no client at this broker."""


class ConsumeMsgTimeoutError(
    BrokerAnswerError, code=ResponseCode.CONSUME_MSG_TIMEOUT, hint="look at the handler, or try again"
):
    """The consumer did not end in time."""


class NoMessageError(
    BrokerAnswerError,
    code=ResponseCode.NO_MESSAGE,
    hint="check the id and the topic; old messages are removed after fileReservedTime",
):
    """There is no such message."""


class PollingFullError(
    BrokerAnswerError, code=ResponseCode.POLLING_FULL, hint="pull again later, or raise the broker's limit"
):
    """Too many requests wait for messages."""


class PollingTimeoutError(BrokerAnswerError, code=ResponseCode.POLLING_TIMEOUT, hint="ask again"):
    """No message came while the request waited."""


class BrokerNotExistError(
    BrokerAnswerError, code=ResponseCode.BROKER_NOT_EXIST, hint="check the broker's name, and that it is registered"
):
    """The name server does not know the broker."""


class BrokerDispatchNotCompleteError(
    BrokerAnswerError, code=ResponseCode.BROKER_DISPATCH_NOT_COMPLETE, hint="retry later"
):
    """The broker still builds its queues and index."""


class BroadcastConsumptionError(
    BrokerAnswerError,
    code=ResponseCode.BROADCAST_CONSUMPTION,
    hint="ask the clients, or use a group that shares the queues",
):
    """The group broadcasts, so its offsets are at its clients."""


class FlowControlError(
    BrokerAnswerError, code=ResponseCode.FLOW_CONTROL, hint="retry later, or send fewer requests at a time"
):
    """The server limits the rate of requests."""


class NotLeaderForQueueError(
    BrokerAnswerError, code=ResponseCode.NOT_LEADER_FOR_QUEUE, hint="refresh the route, and ask its leader"
):
    """The broker does not lead the queue."""


class IllegalOperationError(BrokerAnswerError, code=ResponseCode.ILLEGAL_OPERATION, hint="the remark names the state"):
    """The operation is not possible in this state."""


class GoAwayError(BrokerAnswerError, code=ResponseCode.GO_AWAY, hint="retry; the route leads to other brokers"):
    """The server stops and asks to connect to another."""


class LmqQuotaExceededError(
    BrokerAnswerError, code=ResponseCode.LMQ_QUOTA_EXCEEDED, hint="remove some, or raise the broker's limit"
):
    """Too many light queues."""


class LiteSubscriptionQuotaExceededError(
    BrokerAnswerError,
    code=ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    hint="remove some, or raise the broker's limit",
):
    """Too many light subscriptions."""


class UserNotExistError(
    BrokerAnswerError, code=ResponseCode.USER_NOT_EXIST, hint="create the user, or correct its name"
):
    """The user does not exist."""


class PolicyNotExistError(
    BrokerAnswerError, code=ResponseCode.POLICY_NOT_EXIST, hint="create the policy, or correct its subject"
):
    """The access policy does not exist."""
