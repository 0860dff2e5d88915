"""Errors of the testing kit, part of the tree in common/errors.py."""

from http import HTTPStatus

from rocketbroker.common.errors import RocketBrokerError


class ServerStateError(RocketBrokerError):
    """Use of a RocketMQServer before its start, after its stop, or while it is frozen."""


class ClockError(RocketBrokerError, ValueError):
    """A clock that a test moves cannot go back."""


class ControlError(RocketBrokerError):
    """A request to the control port that is answered by an error.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
