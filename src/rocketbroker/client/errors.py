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

from rocketbroker.common.errors import ConfigError, RocketBrokerError


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
