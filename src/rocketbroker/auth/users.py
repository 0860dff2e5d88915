"""Users of access control (org.apache.rocketmq.auth.authentication.model.User).

A secret is part of a user in memory, since HMAC needs it. It is in no text that this module makes: neither ``repr`` nor
an error has it, and ``User.info`` gives a body without it.
"""

import re
from enum import Enum, IntEnum
from typing import Any, Final, TypeVar

import msgspec

from rocketbroker.auth.errors import AuthValueError
from rocketbroker.codec.remoting.bodies.auth import UserInfo

E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound=msgspec.Struct)

MAX_NAME_LENGTH: Final = 128
#: In UTF-8 bytes. Apache's broker has no limit; RocketMQ's own secrets have 16 to 64 characters.
MAX_SECRET_LENGTH: Final = 1_024

#: In characters, of secrets that requests give. Each failure may cost a guesser as little as a connection, some 100 µs
#: of one core: 36**8 secrets take 9 years, 10**8 three hours.
MIN_SECRET_LENGTH: Final = 8

# Visible ASCII, so that no two names look alike. A comma or slash would end the name in a gRPC authorization header.
_NAME: Final = re.compile(r"[!-+\-.0-~]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class UserType(IntEnum):
    """Kind of a user; the numbers are those of Apache's store."""

    SUPER = 1
    NORMAL = 2

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.capitalize()


class UserStatus(IntEnum):
    """State of a user; the numbers are those of Apache's store."""

    ENABLE = 1
    DISABLE = 2

    @property
    def word(self) -> str:
        """RocketMQ's text."""
        return self.name.lower()


class User(msgspec.Struct, frozen=True):
    """A user and its secret. A ``SUPER`` user has every right, a ``NORMAL`` one those of its policies.

    ``is_inner``: made from ``innerClientAuthenticationCredentials``, and removed once that setting names another user.
    """

    name: str
    secret: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    is_inner: bool = False

    @property
    def is_super(self) -> bool:
        """True for a user with every right."""
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """False for a user whose requests are rejected."""
        return self.status is UserStatus.ENABLE

    def info(self) -> UserInfo:
        """Return the body of an answer: without the secret, which Apache's broker sends in clear."""
        return UserInfo(self.name, None, self.type.word, self.status.word)

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"User({self.name!r}, {self.type.word}, {self.status.word})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Hide the secret from rich, too."""
        return [("name", self.name), ("type", self.type.word), ("status", self.status.word)]


def new_user(info: UserInfo) -> User:
    """Return the user that a body describes; type and status are Normal and enable by default.

    Raises:
        AuthValueError: The name or the secret is missing or not allowed, or type or status is unknown.
    """
    name = check_name(info.username)
    return User(
        name,
        check_secret(name, info.password),
        UserType.NORMAL if not info.user_type else _type(name, info.user_type),
        UserStatus.ENABLE if not info.user_status else _status(name, info.user_status),
    )


def updated_user(user: User, info: UserInfo) -> User:
    """Return the user with the fields that a body has; empty ones stay as they are.

    Raises:
        AuthValueError: A field is not allowed.
    """
    has_secret = bool(info.password and info.password.strip())
    if has_secret and user.is_inner:
        raise AuthValueError(
            f"password of user {user.name}: it is that of innerClientAuthenticationCredentials; change the setting, "
            "the same on all servers, and restart them"
        )
    return User(
        user.name,
        check_secret(user.name, info.password) if has_secret else user.secret,
        _type(user.name, info.user_type) if info.user_type else user.type,
        _status(user.name, info.user_status) if info.user_status else user.status,
        user.is_inner,
    )


class _InitialUser(msgspec.Struct):
    username: str
    password: str


class _InnerCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


def initial_user(text: str) -> User:
    """Return the Super user of the setting ``initAuthenticationUser``, which is created unless it exists.

    Args:
        text: ``{"username": "...", "password": "..."}``.

    Raises:
        AuthValueError: It is not such JSON, or the name or the password is not allowed; the text has no password.
    """
    given = _decoded("initAuthenticationUser", text, _InitialUser, '{"username":"...","password":"..."}')
    return _super_user("initAuthenticationUser", given.username, given.password)


def inner_client_user(text: str) -> User:
    """Return the Super user of the setting ``innerClientAuthenticationCredentials``, by which servers sign.

    Args:
        text: ``{"accessKey": "...", "secretKey": "..."}``.

    Raises:
        AuthValueError: It is not such JSON, or a key is not allowed; the text has no secret.
    """
    name = "innerClientAuthenticationCredentials"
    given = _decoded(name, text, _InnerCredentials, '{"accessKey":"...","secretKey":"..."}')
    return msgspec.structs.replace(_super_user(name, given.access_key, given.secret_key), is_inner=True)


def _decoded(setting: str, text: str, kind: type[S], form: str) -> S:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise AuthValueError(f"{setting}: {error}; give {form}") from None


def _super_user(setting: str, name: str, secret: str) -> User:
    try:
        return User(check_name(name), check_secret(name, secret), UserType.SUPER)
    except AuthValueError as error:
        raise AuthValueError(f"{setting}: {error}") from None


def check_name(name: str | None) -> str:
    """Return a valid name of a user.

    Raises:
        AuthValueError: It is empty, too long, or has other characters than visible ASCII without comma and slash.
    """
    if not name or not name.strip():
        raise AuthValueError("username: it is blank; give the name of the user")
    if len(name) > MAX_NAME_LENGTH:
        raise AuthValueError(f"username: {len(name):,} characters exceed the limit of {MAX_NAME_LENGTH}")
    if not _NAME.fullmatch(name):
        wrong = next(character for character in name if not _NAME.fullmatch(character))
        raise AuthValueError(
            f"username {name!r}: {wrong!r} is not allowed; use visible ASCII characters without comma and slash"
        )
    return name


def check_secret(name: str, secret: str | None) -> str:
    """Return a valid secret of the user ``name``; the text of an error does not have it.

    Raises:
        AuthValueError: It is blank, too long, or has a control character such as a line feed.
    """
    if not secret or not secret.strip():
        raise AuthValueError(f"password of user {name}: it is blank; give a secret")
    try:
        length = len(secret.encode())
    except UnicodeEncodeError as error:
        raise AuthValueError(
            f"password of user {name}: character {error.start + 1} is half of a surrogate pair; use whole characters"
        ) from None
    if length > MAX_SECRET_LENGTH:
        raise AuthValueError(f"password of user {name}: {length:,} bytes exceed the limit of {MAX_SECRET_LENGTH:,}")
    if found := _CONTROL.search(secret):
        raise AuthValueError(
            f"password of user {name}: character {found.start() + 1} is a control character "
            f"(U+{ord(found[0]):04X}); use visible characters and blanks"
        )
    return secret


def check_new_secret(name: str, secret: str) -> None:
    """Check the length of a secret that a user is to get; secrets in tables and settings may be shorter.

    Raises:
        AuthValueError: It is too short to withstand guesses; the text does not have it.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        raise AuthValueError(
            f"password of user {name}: {len(secret)} characters are too few to withstand guesses; use "
            f"{MIN_SECRET_LENGTH} or more, best random ones"
        )


def by_word(kind: type[E], word: str) -> E | None:
    """Return the member of an enum that RocketMQ's word names, in any case of ASCII letters, or ``None``."""
    # upper() turns some other letters into ASCII, such as a long s into S.
    return kind.__members__.get(word.upper()) if word.isascii() else None


def _type(name: str, word: str) -> UserType:
    found = by_word(UserType, word)
    if found is None:
        raise AuthValueError(f"userType of user {name}: {word[:32]!r} is unknown; use Super or Normal")
    return found


def _status(name: str, word: str) -> UserStatus:
    found = by_word(UserStatus, word)
    if found is None:
        raise AuthValueError(f"userStatus of user {name}: {word[:32]!r} is unknown; use enable or disable")
    return found
