"""Errors of access control; a remark sent to a client is the text of one of them."""

from rocketbroker.common.errors import RocketBrokerError


class AuthError(RocketBrokerError):
    """Failure of access control."""


class AuthValueError(AuthError, ValueError):
    """User, policy or file of access control that is not valid; the text names the place and a valid value."""


class AuthConflictError(AuthValueError):
    """Change that does not fit the table: the user or the policy exists already, or does not exist."""


class RefusalError(AuthError):
    """Refused request.

    Args:
        text: the reason.
        username: the user that it names, ``None`` if it names none.
    """

    def __init__(self, text: str, username: str | None = None) -> None:
        super().__init__(text)
        self.username = username


class AuthenticationError(RefusalError):
    """Request without valid credentials (AuthenticationException)."""


class AuthorizationError(RefusalError):
    """Request of a user that lacks the right (AuthorizationException)."""
