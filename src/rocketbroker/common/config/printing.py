"""Output of `-p` and `-m` (MixAll.printObjectProperties in BrokerStartup and NamesrvStartup).

The lines are properties text. Settings that act come first, by class in RocketMQ's order. RocketMQ's other settings
follow under a comment, with the given value or RocketMQ's default.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from rocketbroker.common.config import known_properties
from rocketbroker.common.config.describe import fields_by_name, text_of
from rocketbroker.common.config.fields import ConfigModel, trait_of
from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings
from rocketbroker.common.config.local_host import local_address, local_name

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
                acted.setdefault(name, text_of(getattr(model, attribute)))
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
