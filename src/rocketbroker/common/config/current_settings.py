"""Settings in use: changes at run time, GET_BROKER_CONFIG and GET_NAMESRV_CONFIG, the output of `-p` and `-m`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from rocketbroker.common.config import known_properties
from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.fields import ConfigModel, fields_by_name, problem, shown_text, text_of, trait_of
from rocketbroker.common.config.hosts import local_address, local_name
from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.properties_file import parse_properties, properties_text
from rocketbroker.common.errors import ConfigError, shown

# Changes at run time by UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG (Configuration.update).
#
# RocketMQ changes every property with a setter, except for a black list. Here only settings marked `hot` can be
# changed; no setting that names a path, a class or a command is marked.


class NotChangeableError(ConfigError):
    """The setting exists but cannot be changed at run time; RocketMQ answers NO_PERMISSION for its black list."""


def hot_names(models: Sequence[ConfigModel]) -> list[str]:
    """Return the names that `apply_updates` accepts, sorted."""
    tables = (fields_by_name(type(model)) for model in models)
    return sorted({name for table in tables for name, (_, field) in table.items() if trait_of(field).hot})


def guards(models: Sequence[ConfigModel], names: Iterable[str]) -> list[str]:
    """Return those of the names that decide who is let in, sorted."""
    tables = [fields_by_name(type(model)) for model in models]
    return sorted(name for name in names if any(name in table and trait_of(table[name][1]).guards for table in tables))


def parse_updates(body: bytes) -> dict[str, str]:
    """Parse the body of UPDATE_BROKER_CONFIG: properties text in UTF-8.

    Raises:
        ConfigError: The body is empty or malformed.
    """
    entries = parse_properties(body.decode("utf-8", "surrogateescape"), "line")
    if not entries:
        raise ConfigError("the body names no setting; it takes lines of key=value")
    return {entry.key: entry.value for entry in entries}


def apply_updates(models: Sequence[ConfigModel], updates: Mapping[str, str]) -> dict[str, str]:
    """Apply all `updates` in place or none; return the changed names with their new text.

    Raises:
        NotChangeableError: A setting is fixed at run time.
        ConfigError: A setting is unknown or has a wrong value; the text names both.
    """
    for name, text in updates.items():
        refusal = known_properties.refusal(name, text)
        if refusal:
            raise NotChangeableError(refusal)
        _check_hot(models, name)
        if name == "listenPort" and not text.strip("0 "):  # at start 0 lets the system choose; nobody can connect to it
            raise ConfigError(f"listenPort={text} is not valid: it takes a whole number from 1 to 65535")
    checked = [(model, _checked(model, updates)) for model in models]
    changed: dict[str, str] = {}
    for model, fresh in checked:
        for name, (attribute, _) in fields_by_name(type(model)).items():
            if attribute in fresh and fresh[attribute] != getattr(model, attribute):
                changed[name] = text_of(fresh[attribute])
        model.__dict__.update(fresh)  # the one place that may change a frozen model
    return changed


def _check_hot(models: Sequence[ConfigModel], name: str) -> None:
    listed = [config.config_black_list for config in models if isinstance(config, BrokerConfig | NamesrvConfig)]
    if any(name in names.split(";") for names in listed):
        raise NotChangeableError(f"{name} cannot be changed at run time: configBlackList names it")
    hot = hot_names(models)
    if name in hot:
        return
    known = any(name in fields_by_name(type(model)) for model in models) or known_properties.find(name)
    if known:
        raise NotChangeableError(f"{name} cannot be changed at run time; these can: {', '.join(hot)}")
    near = known_properties.nearest(name, hot)
    raise ConfigError(f"unknown setting {shown(name)}" + (f"; did you mean {near}?" if near else ""))


def _checked(model: ConfigModel, updates: Mapping[str, str]) -> dict[str, object]:
    """Return the validated values, by attribute, of the `updates` that belong to this model."""
    table = fields_by_name(type(model))
    mine = {name: text for name, text in updates.items() if name in table and trait_of(table[name][1]).hot}
    if not mine:
        return {}
    present: dict[str, object] = {name: getattr(model, attribute) for name, (attribute, _) in table.items()}
    try:
        fresh = type(model).model_validate(present | mine)
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = [problem(type(model), detail, mine[str(detail["loc"][0])]) for detail in details]
        raise ConfigError("; ".join(lines)) from error
    return {table[name][0]: getattr(fresh, table[name][0]) for name in mine}


def config_text(models: Sequence[ConfigModel]) -> str:
    """Return the body of GET_BROKER_CONFIG and GET_NAMESRV_CONFIG: every setting that acts, with its current value."""
    values: dict[str, str] = {}
    for model in models:
        for name, (attribute, field) in fields_by_name(type(model)).items():
            values.setdefault(name, shown_text(getattr(model, attribute), field))
    return properties_text(values)


# Output of `-p` and `-m` (MixAll.printObjectProperties in BrokerStartup and NamesrvStartup).
#
# The lines are properties text. Settings that act come first, by class in RocketMQ's order. RocketMQ's other settings
# follow under a comment, with the given value or RocketMQ's default.

NOT_ACTED_ON = "# Settings of RocketMQ without effect in this version:"
_BROKER_CLASSES = ("BrokerConfig", "NettyServerConfig", "NettyClientConfig", "MessageStoreConfig", "AuthConfig")
_NAMESRV_CLASSES = ("NamesrvConfig", "NettyServerConfig", "NettyClientConfig")


def broker_lines(settings: BrokerSettings, *, important: bool = False) -> list[str]:
    """Return the lines of `mqbroker -p`, or with `important` of `mqbroker -m`."""
    return _lines(settings.models, settings.not_acted_on, _BROKER_CLASSES, important=important)


def namesrv_lines(settings: NamesrvSettings, *, important: bool = False) -> list[str]:
    """Return the lines of `mqnamesrv -p`."""
    return _lines(settings.models, settings.not_acted_on, _NAMESRV_CLASSES, important=important)


def _lines(
    models: Sequence[ConfigModel], not_acted_on: dict[str, str], java_classes: Sequence[str], *, important: bool
) -> list[str]:
    known = {item.name: item for java_class in java_classes for item in known_properties.properties_of(java_class)}
    rank = {name: position for position, name in enumerate(known)}
    acted: dict[str, str] = {}
    typed: set[str] = set()
    for model in models:
        table = fields_by_name(type(model))
        typed |= table.keys()
        for name in sorted(table, key=lambda name: rank.get(name, len(rank))):
            attribute, field = table[name]
            if not important or trait_of(field).important:
                acted.setdefault(name, shown_text(getattr(model, attribute), field))
    others = {
        name: not_acted_on.get(name, _default_text(item.default))
        for name, item in known.items()
        if name not in typed and (item.important or not important)
    }
    given = {} if important else {name: value for name, value in not_acted_on.items() if name not in others}
    lines = [f"{name}={value}" for name, value in acted.items()]
    return [*lines, NOT_ACTED_ON, *(f"{name}={value}" for name, value in (others | given).items())]


def _default_text(default: str | None) -> str:
    """Return a default of the data file with its machine-dependent parts filled in as RocketMQ does."""
    text = default or ""
    if "$" not in text:
        return text
    home = os.environ.get("ROCKETMQ_HOME", "")
    for mark, value in (("$ROCKETMQ_HOME", home), ("$HOME", str(Path.home())), ("$HOSTNAME", local_name())):
        text = text.replace(mark, value)
    return text.replace("$LOCAL_IP", local_address()) if "$LOCAL_IP" in text else text
