"""Errors of the clients, as one branch of the tree in common/errors.py.

RocketBrokerError
└── ClientError                  a client cannot do what was asked (MQClientException)
    ├── ClientStateError         ... since it is not started, or closed
    ├── InvalidMessageError      the message, topic or group may not be sent or named like this
    ├── TopicRouteError          no name server knows where the topic is
    ├── BrokerNotFoundError      the route names a broker that has no address
    ├── NameServerError          none of the name servers answered
    └── SendFailedError          a send failed on each try; ``causes`` has what went wrong
"""

from collections.abc import Sequence

from rocketbroker.common.errors import RocketBrokerError


class ClientError(RocketBrokerError):
    """A client cannot do what was asked."""


class ClientStateError(ClientError):
    """A client was used before its start or after its close."""


class InvalidMessageError(ClientError, ValueError):
    """A message, topic or group breaks a rule of RocketMQ; the text says which."""


class TopicRouteError(ClientError):
    """No name server has a route for the topic."""


class BrokerNotFoundError(ClientError):
    """A broker that is named has no address in the routes."""


class NameServerError(ClientError):
    """None of the name servers answered."""


class SendFailedError(ClientError):
    """A send failed on each try; ``causes`` are the errors, one for each, in order."""

    def __init__(self, text: str, causes: Sequence[Exception]) -> None:
        super().__init__(text)
        self.causes = tuple(causes)
