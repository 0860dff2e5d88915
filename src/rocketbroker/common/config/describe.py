"""Descriptions of settings and their errors, derived from the models."""

from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rocketbroker.common.config.fields import ConfigModel, trait_of
from rocketbroker.common.shown_name import shown


def fields_by_name(model: type[ConfigModel]) -> dict[str, tuple[str, FieldInfo]]:
    """Return attribute name and field by RocketMQ's name of each setting, those of base classes last."""
    fields = sorted(model.model_fields.items(), key=lambda field: field[0] not in model.__annotations__)
    return {str(field.alias): (attribute, field) for attribute, field in fields}


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


def problem(model: type[ConfigModel], error: ErrorDetails, value: str) -> str:
    """Return the one-line text of a validation error, without file and line."""
    name = str(error["loc"][0])
    value = shown(value)
    reason = str(error.get("ctx", {}).get("error", ""))
    if reason.startswith("rejected: "):
        return f"{name}={value} is {reason}"
    return f"{name}={value} is not valid: it takes {right_values(fields_by_name(model)[name][1])}"
