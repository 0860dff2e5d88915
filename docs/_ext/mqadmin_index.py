"""Index of the sub-commands of mqadmin: ``src/rocketbroker/app/mqadmin/index.py``, written from their decorators."""

import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rocketbroker.app import mqadmin
from rocketbroker.app.mqadmin.command import REGISTERED, Registered

INDEX = Path(mqadmin.__path__[0]) / "index.py"
# Subjects in the order of the help; further ones follow by name.
_ORDER = (
    *("doctor", "why", "clusters", "name_servers", "brokers", "settings"),
    *("topics", "groups", "offsets", "messages", "statistics"),
)
_HEAD = '''\
"""Summaries of the sub-commands by the module that has them, so that a start imports only the one that runs.

Written by ``bin/manual`` from the decorators of the sub-commands.
"""

from typing import Final

SUMMARIES: Final[dict[str, dict[str, str]]] = {
'''


def sub_commands() -> dict[str, dict[str, Registered]]:
    """Import all modules of mqadmin, and return the sub-commands by module and name, in the order of the help."""
    found: dict[str, dict[str, Registered]] = {}
    names = sorted(each.name for each in iter_modules(mqadmin.__path__) if each.name not in {"cli", "index", "command"})
    for name in sorted(names, key=lambda each: _ORDER.index(each) if each in _ORDER else len(_ORDER)):
        module = import_module(f"{mqadmin.__name__}.{name}").__name__
        # The decorators register by name; a module may have been imported before, in another order.
        own = {key: each for key, each in REGISTERED.items() if each.module == module}
        if own:
            found[name] = own
    return found


def all_sub_commands() -> dict[str, Registered]:
    """Return the sub-commands by name, in the order of the help."""
    return {name: each for own in sub_commands().values() for name, each in own.items()}


def render() -> str:
    """Return the whole file."""
    lines = [_HEAD]
    for module, own in sub_commands().items():
        lines += [f'    "{module}": {{\n']
        lines += [f'        "{name}": {json.dumps(each.summary, ensure_ascii=False)},\n' for name, each in own.items()]
        lines += ["    },\n"]
    return "".join([*lines, "}\n"])
