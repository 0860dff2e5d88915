"""Errors of access control; a remark sent to a client is the text of one of them."""

from rocketbroker.common.errors import RocketBrokerError


class AuthError(RocketBrokerError):
    """Failure of access control."""


class AuthValueError(AuthError, ValueError):
    """User, policy or file of access control that is not valid; the text names the place and a valid value."""


class AuthConflictError(AuthValueError):
    """Change that does not fit the table: the user or the policy exists already, or does not exist."""


class AuthenticationError(AuthError):
    """Request without valid credentials (AuthenticationException)."""


class AuthorizationError(AuthError):
    """Request of a user that lacks the right (AuthorizationException)."""
