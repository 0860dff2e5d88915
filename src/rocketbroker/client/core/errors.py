"""Errors of the clients: one branch of the tree in common/errors.py.

RocketBrokerError
├── BrokerResponseError          answer other than success
│   └── BrokerAnswerError        ... with a known code, its hint, and true if a retry may help
│       ├── ServerFaultError     SYSTEM_ERROR
│       ├── SystemBusyError      SYSTEM_BUSY
│       ├── RequestCodeNotSupportedError  REQUEST_CODE_NOT_SUPPORTED
│       ├── NoPermissionError    NO_PERMISSION
│       ├── TopicNotExistError   TOPIC_NOT_EXIST
│       └── ConsumerNotOnlineError  CONSUMER_NOT_ONLINE
└── ClientError                  failure of a client operation (MQClientException)
    ├── ClientStateError         client not started, or closed
    ├── InvalidMessageError      invalid message, topic or group
    ├── OptionError              unknown argument, or a value that is not allowed
    ├── TopicRouteError          no route for the topic
    │   └── GroupNotConsumedError  ... of the retries of a group that exists
    ├── BrokerNotFoundError      no address for a broker of the route
    ├── NameServerError          no name server answered
    ├── AllocationError          queues cannot be allocated to the members of a group
    ├── SubscriptionError        consumers of one group in this process differ in their subscriptions
    ├── HandlerError             a handler that cannot be called with one message, or returns a wrong value
    ├── RequestTimeoutError      no reply to a request in time
    └── SendFailedError          all tries of a send failed; ``causes`` has the errors
"""

from collections.abc import Sequence
from typing import NamedTuple

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


class GroupNotConsumedError(TopicRouteError):
    """A consumer group exists and has no retry topic, since no consumer of it has come yet."""


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


class BrokerAnswerError(BrokerResponseError):
    """Answer of a broker or name server with a known code; a traceback shows ``name`` and ``hint`` as a note.

    Attributes:
        name: name of the code in RocketMQ, such as ``TOPIC_NOT_EXIST``.
        hint: advice to the user.
        retriable: the same request may succeed a little later, without a change at client or broker.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(code, remark)
        self.name = ResponseCode(code).name
        self.hint, self.retriable = ANSWERS[code]
        self.add_note(f"{self.name}: {self.hint}")


class ServerFaultError(BrokerAnswerError):
    """SYSTEM_ERROR: the server failed, or refused for the reason in its remark."""


class SystemBusyError(BrokerAnswerError):
    """SYSTEM_BUSY: the server has too much to do, or its disk is slow."""


class RequestCodeNotSupportedError(BrokerAnswerError):
    """REQUEST_CODE_NOT_SUPPORTED: the server does not know the request."""


class NoPermissionError(BrokerAnswerError):
    """NO_PERMISSION: the user, topic or group lacks the right."""


class TopicNotExistError(BrokerAnswerError):
    """TOPIC_NOT_EXIST: the topic does not exist."""


class ConsumerNotOnlineError(BrokerAnswerError):
    """CONSUMER_NOT_ONLINE: the group has no client at this broker."""


class Answer(NamedTuple):
    """Advice to the user, and true if the same request may succeed later."""

    hint: str
    retriable: bool = False


ANSWERS: dict[int, Answer] = {
    ResponseCode.SYSTEM_ERROR: Answer("the remark has the reason; the server's log may have more", retriable=True),
    ResponseCode.SYSTEM_BUSY: Answer("retry later, or send fewer messages at a time", retriable=True),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Answer(
        "check that the address is that of a broker or of a name server, as the call needs, and its version"
    ),
    ResponseCode.TRANSACTION_FAILED: Answer("the broker checks the transaction later; answer in the producer's check"),
    ResponseCode.FLUSH_DISK_TIMEOUT: Answer(
        "do not send it again without a key that shows duplicates; look at the broker's disk"
    ),
    ResponseCode.SLAVE_NOT_AVAILABLE: Answer("start the slave, or set the broker's brokerRole to ASYNC_MASTER"),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Answer(
        "do not send it again without a key that shows duplicates; look at the slave"
    ),
    ResponseCode.MESSAGE_ILLEGAL: Answer("check topic, size, properties and delay against the remark"),
    ResponseCode.SERVICE_NOT_AVAILABLE: Answer(
        "retry later; the remark says what is wrong, such as a full disk", retriable=True
    ),
    ResponseCode.VERSION_NOT_SUPPORTED: Answer("update the server"),
    ResponseCode.NO_PERMISSION: Answer("check credentials, the topic's perm, and whether the group may consume"),
    ResponseCode.TOPIC_NOT_EXIST: Answer("create it, or set autoCreateTopicEnable=true in the broker"),
    ResponseCode.TOPIC_EXIST_ALREADY: Answer("choose another name, or update the topic"),
    ResponseCode.PULL_NOT_FOUND: Answer("pull again, with time for the broker to wait", retriable=True),
    ResponseCode.PULL_RETRY_IMMEDIATELY: Answer("pull again from the next offset", retriable=True),
    ResponseCode.PULL_OFFSET_MOVED: Answer("continue at the offset in the answer"),
    ResponseCode.QUERY_NOT_FOUND: Answer("check the name, key or time range"),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Answer("correct the expression; the remark names the place"),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: Answer(
        "wait for the next heartbeat, and give all members of the group the same subscriptions", retriable=True
    ),
    ResponseCode.SUBSCRIPTION_NOT_LATEST: Answer("wait for the next heartbeat", retriable=True),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Answer(
        "create it, or set autoCreateSubscriptionGroup=true in the broker"
    ),
    ResponseCode.FILTER_DATA_NOT_EXIST: Answer("wait for the next heartbeat", retriable=True),
    ResponseCode.FILTER_DATA_NOT_LATEST: Answer("wait for the next heartbeat", retriable=True),
    ResponseCode.INVALID_PARAMETER: Answer("correct the value that the remark names"),
    ResponseCode.TRANSACTION_SHOULD_COMMIT: Answer("answer the broker's check"),
    ResponseCode.TRANSACTION_SHOULD_ROLLBACK: Answer("answer the broker's check"),
    ResponseCode.TRANSACTION_STATE_UNKNOW: Answer("answer the broker's check"),
    ResponseCode.TRANSACTION_STATE_GROUP_WRONG: Answer("end it by a producer of its group"),
    ResponseCode.NO_BUYER_ID: Answer("add it, or send to another unit"),
    ResponseCode.NOT_IN_CURRENT_UNIT: Answer("send it to the brokers of its unit"),
    ResponseCode.CONSUMER_NOT_ONLINE: Answer("start a consumer of the group"),
    ResponseCode.CONSUME_MSG_TIMEOUT: Answer("look at the handler, or try again", retriable=True),
    ResponseCode.NO_MESSAGE: Answer("check the id and the topic; old messages are removed after fileReservedTime"),
    ResponseCode.POLLING_FULL: Answer("pull again later, or raise the broker's limit", retriable=True),
    ResponseCode.POLLING_TIMEOUT: Answer("ask again", retriable=True),
    ResponseCode.BROKER_NOT_EXIST: Answer("check the broker's name, and that it is registered"),
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: Answer("retry later", retriable=True),
    ResponseCode.BROADCAST_CONSUMPTION: Answer("ask the clients, or use a group that shares the queues"),
    ResponseCode.FLOW_CONTROL: Answer("retry later, or send fewer requests at a time", retriable=True),
    ResponseCode.NOT_LEADER_FOR_QUEUE: Answer("refresh the route, and ask its leader"),
    ResponseCode.ILLEGAL_OPERATION: Answer("the remark names the state"),
    ResponseCode.GO_AWAY: Answer("retry; the route leads to other brokers", retriable=True),
    ResponseCode.LMQ_QUOTA_EXCEEDED: Answer("remove some, or raise the broker's limit"),
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Answer("remove some, or raise the broker's limit"),
    ResponseCode.USER_NOT_EXIST: Answer("create the user, or correct its name"),
    ResponseCode.POLICY_NOT_EXIST: Answer("create the policy, or correct its subject"),
}

# Classes of the codes that programs catch; ``code`` and ``retriable`` serve for the others.
_CLASSES: dict[int, type[BrokerAnswerError]] = {
    ResponseCode.SYSTEM_ERROR: ServerFaultError,
    ResponseCode.SYSTEM_BUSY: SystemBusyError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: RequestCodeNotSupportedError,
    ResponseCode.NO_PERMISSION: NoPermissionError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotExistError,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnlineError,
}


def broker_error(code: int, remark: str | None) -> BrokerResponseError:
    """Return the error for an answer; a plain BrokerResponseError for an unknown code."""
    kind = _CLASSES.get(code, BrokerAnswerError if code in ANSWERS else BrokerResponseError)
    return kind(code, remark or "")
