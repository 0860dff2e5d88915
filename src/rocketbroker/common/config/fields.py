"""Building blocks of settings: RocketMQ's name, a type that parses properties text, a range, a unit and a meaning.

They correspond to the plain fields of BrokerConfig, MessageStoreConfig, NamesrvConfig and NettyServerConfig, which
MixAll.properties2Object reads from text. Unlike there, text that the type cannot parse is an error and never ignored.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

DIGITS_MAX = 20
PATH_MAX = 4_096


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
    """Properties of a setting beyond pydantic's: unit, change at run time, description of valid values.

    `hot`: changeable by UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG. `important`: printed by `-m` (RocketMQ's
    @ImportantField). `own`: rocketbroker's own name, or one that RocketMQ takes as a system property or dropped.
    `takes`: the valid values in words, if type and range do not express them.
    """

    unit: str = ""
    hot: bool = False
    important: bool = False
    own: bool = False
    takes: str = ""
    shown_default: str | None = None


def setting(
    name: str,
    default: Any,
    meaning: str,
    trait: Trait | None = None,
    *,
    low: int | None = None,
    high: int | None = None,
) -> Any:
    """Return a field for the property `name`.

    Args:
        name: RocketMQ's name.
        default: a value, or a callable that returns one.
        meaning: description for the manual.
        trait: unit and further properties.
        low: lowest valid value.
        high: highest valid value.
    """
    known: dict[str, Any] = {"alias": name, "description": meaning, "json_schema_extra": {"trait": trait or Trait()}}
    if low is not None:
        known["ge"] = low
    if high is not None:
        known["le"] = high
    if callable(default):
        return Field(default_factory=default, **known)
    return Field(default, **known)


class ConfigModel(BaseModel):
    """Base of the four models. Read attributes at each use: a hot change replaces values in place.

    Instances are frozen to everyone but `hot_change.apply_updates`.
    """

    # defer_build: each server builds the validators of its own settings only.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


def trait_of(field: FieldInfo) -> Trait:
    """Return the `Trait` that `setting` put beside the field."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or not isinstance(extra.get("trait"), Trait):
        raise TypeError(f"{field.alias} was not declared by setting()")
    return extra["trait"]  # type: ignore[return-value]
