"""Settings of access control (org.apache.rocketmq.auth.config.AuthConfig)."""

from typing import Annotated, Final

from pydantic import AfterValidator

from rocketbroker.common.config.fields import ConfigModel, Flag, Line, OptionalPath, Text, Trait, setting
from rocketbroker.common.errors import ConfigError

_MOST_CODES: Final = 1_000
_MOST_CHARACTERS: Final = 8_192  # a secret has at most 1,024 bytes, and JSON writes six for some
_HIGHEST_CODE: Final = 2**31 - 1
#: Codes that change or show users and policies; they are checked whatever the white lists say.
AUTH_CODES: Final = frozenset(range(3001, 3011))
#: Codes that change settings of brokers and name servers, some of which are for Super users.
SETTINGS_CODES: Final = frozenset({25, 318})


def parse_codes(value: str) -> frozenset[int]:
    """Return the request codes of a white list.

    Raises:
        ValueError: A part is no request code.
    """
    codes: set[int] = set()
    for part in filter(None, map(str.strip, value.split(","))):
        if not (part.isascii() and part.isdigit() and len(part) <= 10 and int(part) <= _HIGHEST_CODE):
            raise ValueError("not a request code")
        codes.add(int(part))
    return frozenset(codes)


def _check_codes(value: str) -> str:
    codes = parse_codes(value)
    if len(codes) > _MOST_CODES:
        raise ValueError("too many codes")
    if wrong := sorted(codes & AUTH_CODES):
        raise ValueError(
            f"rejected: {wrong[0]} is a request for users and policies, which needs credentials; leave it out"
        )
    return value


def parse_users(value: str) -> frozenset[str]:
    """Return the names of users in a list."""
    return frozenset(filter(None, map(str.strip, value.split(","))))


def _check_unsigned_codes(value: str) -> str:
    if wrong := sorted(parse_codes(_check_codes(value)) & SETTINGS_CODES):
        raise ValueError(
            f"rejected: {wrong[0]} is a request that changes settings, which needs credentials; leave it out"
        )
    return value


def _check_length(value: str) -> str:
    if len(value) > _MOST_CHARACTERS:
        raise ValueError("too long")
    return value


_CODES: Final = Trait(takes="request codes joined by commas, such as 105,106, without 3001 to 3010")
_CLASS_MEANING: Final = "Class of RocketMQ that {}; this one is built in."

Codes = Annotated[Text, AfterValidator(_check_codes)]
Users = Annotated[Text, AfterValidator(_check_length)]
UnsignedCodes = Annotated[Text, AfterValidator(_check_unsigned_codes)]
Credentials = Annotated[Text, AfterValidator(_check_length)]


class AuthSwitches(ConfigModel):
    """Switches of the checks, and the user of own requests; a proxy has these alone."""

    authentication_enabled: Flag = setting(
        False,
        "Serve only requests that a user has signed. A name server serves routes to everyone nevertheless, unless "
        "authorizeRouteReads=true.",
        Trait(important=True),
    )
    authorization_enabled: Flag = setting(
        False, "Serve only requests for which the user has the rights; needs authenticationEnabled=true.", Trait()
    )
    inner_client_authentication_credentials: Credentials = setting(
        "",
        'User by which servers sign their own requests, the same on all of them: {"accessKey":"...","secretKey":"..."}.'
        " It is created with every right if it does not exist, and removed again once the setting names another one.",
        Trait(secret=True, takes='{"accessKey":"...","secretKey":"..."}'),
    )
    bound_signature_users: Users = setting(
        "",
        "Users whose requests must have signatures that are bound to their connection, or * for all. Clients of "
        "RocketMQ cannot make them. A server binds its own, if the user of innerClientAuthenticationCredentials is "
        "among them.",
        Trait(own=True, takes="names of users joined by commas, or *"),
    )
    authentication_provider: Line = setting(
        "",
        _CLASS_MEANING.format("checks signatures"),
        Trait(takes="the class of RocketMQ, or nothing; no other is loaded"),
    )
    authentication_metadata_provider: Line = setting(
        "", _CLASS_MEANING.format("keeps users"), Trait(takes="the class of RocketMQ, or nothing; no other is loaded")
    )
    authentication_strategy: Line = setting(
        "",
        "Class of RocketMQ that chooses the requests to check; every request is checked here.",
        Trait(takes="the class of RocketMQ, or nothing; no other is loaded"),
    )
    authorization_provider: Line = setting(
        "",
        _CLASS_MEANING.format("decides by policies"),
        Trait(takes="the class of RocketMQ, or nothing; no other is loaded"),
    )
    authorization_metadata_provider: Line = setting(
        "",
        _CLASS_MEANING.format("keeps policies"),
        Trait(takes="the class of RocketMQ, or nothing; no other is loaded"),
    )
    authorization_strategy: Line = setting(
        "",
        "Class of RocketMQ that chooses the requests to check; every request is checked here.",
        Trait(takes="the class of RocketMQ, or nothing; no other is loaded"),
    )


class AuthSettings(AuthSwitches):
    """Users, and what they may do."""

    authorization_open_as_apache: Flag = setting(
        False,
        "Leave open to every user what RocketMQ leaves open, such as changes of settings and of groups; protected mode "
        "then decides on them.",
        Trait(own=True),
    )
    authentication_whitelist: UnsignedCodes = setting(
        "",
        "Request codes served without a signature. With authorizationEnabled=true they must be in "
        "authorizationWhitelist, too: rights are those of a user.",
        Trait(takes="request codes joined by commas, such as 105,106, without 25, 318 and 3001 to 3010"),
    )
    authorization_whitelist: Codes = setting("", "Request codes served to every user.", _CODES)
    init_authentication_user: Credentials = setting(
        "",
        "User with every right that each start creates if it does not exist, also after it was deleted: "
        '{"username":"...","password":"..."}.',
        Trait(secret=True, takes='{"username":"...","password":"..."}'),
    )
    auth_config_path: OptionalPath = setting(
        "",
        "Folder of accessControl.json, the table of users and policies, and of accessControl.key, the key of their "
        "secrets, for one server alone. Empty means that of the other tables.",
        Trait(takes="a path"),
    )
    migrate_auth_from_v1_enabled: Flag = setting(
        False,
        "Create the users and policies of plain_acl.yml and of the folder acl, in the folder conf of ROCKETMQ_HOME, "
        "once in the life of the table; users that exist stay as they are. A slave gets those of its master. Needs the "
        "extra migration.",
    )


def check_auth(settings: AuthSwitches) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigError: They contradict.
    """
    if settings.authorization_enabled and not settings.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: without a signature nobody knows whose rights "
            "count"
        )
