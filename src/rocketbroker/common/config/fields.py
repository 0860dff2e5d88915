"""Building blocks of settings: RocketMQ's name, a type that parses properties text, a range, a unit and a meaning.

They correspond to the plain fields of BrokerConfig, MessageStoreConfig, NamesrvConfig and NettyServerConfig, which
MixAll.properties2Object reads from text. Unlike there, text that the type cannot parse is an error and never ignored.
"""

import ipaddress
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rocketbroker.common.errors import shown

DIGITS_MAX = 20
PATH_MAX = 4_096
PORT_MAX = 65_535


def _read_flag(value: object) -> object:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("true", "false"):
        return word == "true"
    if isinstance(word, bool):
        return word
    raise ValueError("not a boolean")


def _read_whole(value: object) -> object:
    if isinstance(value, str):
        text = value.strip()
        digits = text.removeprefix("-").removeprefix("+")
        if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
            return int(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("not a whole number")


def _read_text(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _check_path(value: str) -> str:
    if not value or "\0" in value or len(value) > PATH_MAX:
        raise ValueError("not a path")
    return value


Flag = Annotated[bool, BeforeValidator(_read_flag)]
Whole = Annotated[int, BeforeValidator(_read_whole)]
Text = Annotated[str, BeforeValidator(_read_text)]
FilePath = Annotated[Text, AfterValidator(_check_path)]


@dataclass(frozen=True, slots=True)
class Trait:
    """Properties of a setting: unit, range, change at run time, description of valid values.

    `hot`: changeable by UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG. `important`: printed by `-m` (RocketMQ's
    @ImportantField). `own`: rocketbroker's own name, or one that RocketMQ takes as a system property or dropped.
    `takes`: the valid values in words, if type and range do not express them. `secret`: never shown. `guards`: decides
    who is let in, so that with access control a Super user alone may change it at run time.
    """

    unit: str = ""
    hot: bool = False
    important: bool = False
    own: bool = False
    takes: str = ""
    shown_default: str | None = None
    low: int | None = None
    high: int | None = None
    secret: bool = False
    guards: bool = False


HOT: Final = Trait(hot=True)
HOT_IMPORTANT: Final = Trait(hot=True, important=True)
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
INT_MAX: Final = 2**31 - 1


def whole(low: int, high: int, unit: str = "", **further: Any) -> Trait:
    """Return the trait of a whole number from `low` to `high`; `further` are fields of `Trait`."""
    return Trait(unit, low=low, high=high, **further)


millis = partial(whole, unit="ms")
size = partial(whole, unit="bytes")
percent = partial(whole, unit="%")


def setting(default: Any, meaning: str, trait: Trait | None = None, *, name: str | None = None) -> Any:
    """Return a field for a property of RocketMQ.

    Args:
        default: a value, or a callable that returns one.
        meaning: description for the manual.
        trait: unit, range and further properties.
        name: RocketMQ's name, if it is not the attribute's in camel case.
    """
    trait = trait or Trait()
    known: dict[str, Any] = {"description": meaning, "json_schema_extra": {"trait": trait}}
    known |= {
        key: value for key, value in (("alias", name), ("ge", trait.low), ("le", trait.high)) if value is not None
    }
    known["repr"] = not trait.secret
    return Field(default_factory=default, **known) if callable(default) else Field(default, **known)


class ConfigModel(BaseModel):
    """Base of the four models. Read attributes at each use: a hot change replaces values in place.

    Instances are frozen to everyone but `hot_change.apply_updates`.
    """

    # defer_build: each server builds the validators of its own settings only.
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=to_camel, defer_build=True
    )


def trait_of(field: FieldInfo) -> Trait:
    """Return the `Trait` that `setting` put beside the field."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or not isinstance(extra.get("trait"), Trait):
        raise TypeError(f"a field was not declared by setting(): {field.description}")
    return extra["trait"]  # type: ignore[return-value]


_LINE_MAX = 255
_HOST_MAX = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?\Z")
_URL_PATH = re.compile(r"[A-Za-z0-9._~/-]{1,255}\Z")

LINE_WORDS = f"up to {_LINE_MAX} printable characters"
HOST_WORDS = "an IP address or host name, without a port"
URL_HOST_WORDS = "a host name or IP address, with :port unless that is the default, and with https:// for TLS"
URL_PATH_WORDS = "1 to 255 of the characters a-z A-Z 0-9 . _ ~ / -"
# Default of addresses to listen on.
ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104
BIND_WORDS = "an IP address or host name of this machine; 0.0.0.0 or empty means all"


def strip(value: object) -> object:
    """Remove white space around a text of a file, before it is compared."""
    return value.strip() if isinstance(value, str) else value


def is_host(value: str) -> bool:
    """Return true if a text is an IP address, or a name that may have one."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        last = value.rstrip(".").rpartition(".")[2]
        return len(value) <= _HOST_MAX and _HOST.match(value) is not None and not last.isdigit()
    return True


def is_address(value: str) -> bool:
    """Return true if a text is `host:port`, with an IPv6 address in brackets."""
    host, _, port = value.rpartition(":")
    return _is_port(port) and is_host(host.removeprefix("[").removesuffix("]"))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and 0 < int(text) <= PORT_MAX


def _is_nobody(value: str) -> bool:
    """Return true if a text is an address that no peer can connect to."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address.is_unspecified or address.is_multicast


def _check_line(value: str) -> str:
    if len(value) > _LINE_MAX or not value.isprintable():
        raise ValueError("not one short line")
    return value


def _check_host(value: str) -> str:
    if not is_host(value) or _is_nobody(value):
        raise ValueError("not a host")
    return value


def _check_bind_address(value: str) -> str:
    if value and not is_host(value):
        raise ValueError("not a host")
    return value


def _check_url_host(value: str) -> str:
    host, colon, port = value.removeprefix("https://").partition(":")
    if not is_host(host) or (colon and not _is_port(port)):
        raise ValueError("not a host with a port")
    return value


def _check_url_path(value: str) -> str:
    if not _URL_PATH.match(value):
        raise ValueError("not a part of a path")
    return value


def _check_optional_path(value: str) -> str:
    if "\0" in value or len(value) > PATH_MAX:
        raise ValueError("not a path")
    return value


Line = Annotated[Text, AfterValidator(_check_line)]
Host = Annotated[Text, AfterValidator(_check_host)]
BindAddress = Annotated[Text, AfterValidator(_check_bind_address)]
UrlHost = Annotated[Text, AfterValidator(_check_url_host)]
UrlPath = Annotated[Text, AfterValidator(_check_url_path)]
OptionalPath = Annotated[Text, AfterValidator(_check_optional_path)]


def fields_by_name(model: type[ConfigModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Return attribute name and field by RocketMQ's name of each setting, those of base classes last."""
    fields = sorted(model.model_fields.items(), key=lambda field: field[0] not in model.__annotations__)
    # A model that was not used yet has no generated aliases.
    return {field.alias or to_camel(attribute): (attribute, field) for attribute, field in fields}


def type_word(field: FieldInfo) -> str:
    """Return `boolean`, `integer` or `text`."""
    if field.annotation is bool:
        return "boolean"
    return "integer" if field.annotation is int else "text"


def bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    """Return the lowest and highest value, None for no bound."""
    lows = [item.ge for item in field.metadata if hasattr(item, "ge")]
    highs = [item.le for item in field.metadata if hasattr(item, "le")]
    return (lows[0] if lows else None, highs[0] if highs else None)


def right_values(field: FieldInfo) -> str:
    """Return the valid values in words: `true or false`, `a whole number from 1 to 65535`."""
    trait = trait_of(field)
    if trait.takes:
        return trait.takes
    if get_origin(field.annotation) is Literal:
        return " or ".join(get_args(field.annotation))
    if field.annotation is bool:
        return "true or false"
    if field.annotation is int:
        low, high = bounds(field)
        return f"a whole number from {low} to {high}" + (f" ({trait.unit})" if trait.unit else "")
    return "text"


def text_of(value: object) -> str:
    """Return a value as properties text: booleans as true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_text(value: object, field: FieldInfo) -> str:
    """Return a value as properties text for readers of the settings: stars for a secret."""
    return "******" if trait_of(field).secret and value else text_of(value)


def problem(model: type[ConfigModel], error: ErrorDetails, value: str) -> str:
    """Return the one-line text of a validation error, without file and line."""
    name = str(error["loc"][0])
    field = fields_by_name(model)[name][1]
    value = shown("******" if trait_of(field).secret else value)
    reason = str(error.get("ctx", {}).get("error", ""))
    if reason.startswith("rejected: "):
        return f"{name}={value} is {reason}"
    return f"{name}={value} is not valid: it takes {right_values(field)}"
