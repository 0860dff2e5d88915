"""Errors of the testing kit, part of the tree in common/errors.py."""

from rocketbroker.common.errors import RocketBrokerError


class ServerStateError(RocketBrokerError):
    """Use of a RocketMQServer before its start, after its stop, or while it is frozen."""


class ClockError(RocketBrokerError, ValueError):
    """A clock that a test moves cannot go back."""
