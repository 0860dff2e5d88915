"""Validation of entries into models; errors for unknown names and invalid or rejected values name the location.

A name of RocketMQ 4.x or 5.x that no model has is a warning; an unknown name is an error with the nearest known name.
MixAll.properties2Object ignores both.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError

from rocketbroker.common.config import known_properties, refused_settings
from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.describe import fields_by_name, problem
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError

MODELS: tuple[type[ConfigModel], ...] = (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig)

Model = TypeVar("Model", bound=ConfigModel)


@dataclass(slots=True)
class Resolved:
    """Models by class, warnings of one line, and the values of properties without effect."""

    models: dict[type[ConfigModel], ConfigModel]
    warnings: list[str] = field(default_factory=list)
    not_acted_on: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)

    def model(self, kind: type[Model]) -> Model:
        """Return the model of a class that was among the `kinds` of `resolve`."""
        model = self.models[kind]
        assert isinstance(model, kind)
        return model


def resolve(
    kinds: Sequence[type[ConfigModel]], entries: Iterable[Entry], defaults: Mapping[str, object] | None = None
) -> Resolved:
    """Build the models of `kinds`; a later entry of the same name wins over an earlier one and over `defaults`.

    Raises:
        ConfigError: Settings are invalid, one line for each.
    """
    last = {entry.key: entry for entry in entries}
    tables = {kind: fields_by_name(kind) for kind in kinds}
    problems: dict[str, str] = {}
    result = Resolved({}, given=set(last))
    for entry in last.values():
        if not any(entry.key in table for table in tables.values()):
            _unacted(entry, result, problems)
    for kind, table in tables.items():
        values = {name: value for name, value in (defaults or {}).items() if name in table}
        chosen = {name: last[name] for name in table if name in last}
        _build(kind, values, chosen, result, problems)
    if problems:
        raise ConfigError("\n".join(_worst({name: problems[name] for name in last if name in problems})))
    return result


def _build(
    kind: type[ConfigModel],
    values: dict[str, object],
    chosen: dict[str, Entry],
    result: Resolved,
    problems: dict[str, str],
) -> None:
    try:
        result.models[kind] = kind.model_validate(values | {name: entry.value for name, entry in chosen.items()})
    except ValidationError as error:
        for details in error.errors(include_url=False):
            entry = chosen[str(details["loc"][0])]
            problems[entry.key] = f"{entry.where}: {problem(kind, details, entry.value)}"


def _unacted(entry: Entry, result: Resolved, problems: dict[str, str]) -> None:
    refusal = refused_settings.refusal(entry.key, entry.value)
    if refusal:
        problems[entry.key] = f"{entry.where}: {refusal}"
        return
    own = [name for model in MODELS for name in fields_by_name(model)]
    known = known_properties.find(entry.key)
    if entry.key in own:
        result.warnings.append(f"{entry.where}: {entry.key} has no effect in this process")
    elif known is not None or refused_settings.is_refused_setting(entry.key):
        until = f" up to {known.last_version}" if known and known.last_version else ""
        result.warnings.append(
            f"{entry.where}: {entry.key} is a setting of RocketMQ{until} without effect in this version"
        )
    else:
        near = known_properties.nearest(entry.key, own)
        hint = f"; did you mean {near}?" if near else ""
        problems[entry.key] = f"{entry.where}: unknown setting {entry.key}{hint}"
        return
    result.not_acted_on[entry.key] = entry.value


def _worst(problems: dict[str, str]) -> list[str]:
    """Return only the rejected role if there is one: it explains the other problems of such a file."""
    role = problems.get("brokerRole", "")
    return [role] if " is rejected: " in role else list(problems.values())
