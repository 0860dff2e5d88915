"""Page of RocketMQ's settings and their state here."""

import re
from collections.abc import Iterable, Iterator

from docs._ext.configuration import SECTIONS
from rocketbroker.common.config import known_properties
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.known_properties import is_refused_setting
from rocketbroker.common.config.unserved import EXPECTED, REASONS, REJECTED, REJECTED_DEFAULTS

_INTRODUCTION = """\
# Settings of RocketMQ 5.5.0 and their state here

For operators who bring a `broker.conf` or `namesrv.conf` of Apache RocketMQ: find out which of its lines have an
effect. The page is generated from the tables that the servers read.

1. Start the server with your file. It rejects unknown names and invalid values, and shows the nearest name or the
   range. It rejects a setting that would change what the data or the deployment is, and warns about one that you may
   count on. One more line counts the settings that have no counterpart here.
2. Look up the names of rejections and warnings below.
3. Read [Configuration](../reference/configuration.md) for ranges, units and the settings that RocketMQ does not have.

"""


def acting() -> dict[str, list[str]]:
    """Return the settings of RocketMQ that act here, by section of the configuration page."""
    return {
        title: [name for name in fields_by_name(model) if known_properties.find(name)] for title, _, model in SECTIONS
    }


def switches() -> list[str]:
    """Return the rejected settings of access control and TLS."""
    return sorted(
        name
        for name in known_properties.names().difference(*acting().values())
        if is_refused_setting(name) and name not in REJECTED
    )


def render() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION + _count(), *_acting(), *_rejected(), *_expected(), *_reasons()])


def _count() -> str:
    known = known_properties.names()
    act = len(set().union(*acting().values()))
    rejected, warned = len(REJECTED) + len(switches()), len(EXPECTED)
    return (
        f"Of {len(known)} settings of all its servers and versions {act} act, {rejected} are rejected, {warned} are "
        f"warned of, and {len(known) - act - rejected - warned} have no counterpart.\n"
    )


def _acting() -> Iterator[str]:
    yield "## Settings that act\n\nEach has RocketMQ's default. Some have a narrower range; see the linked sections.\n"
    for title, names in acting().items():
        anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        yield f"- **[{title}](../reference/configuration.md#{anchor})**: {_listed(names)}"
    yield ""


def _rejected() -> Iterator[str]:
    yield (
        "## Settings that are rejected\n\nA server does not start if one has another value than shown: messages would "
        "be stored, replicated or protected otherwise than the file says.\n\n| name | may be | this version has no |\n"
        "|---|---|---|"
    )
    for name, (lacks, _) in sorted(REJECTED.items()):
        yield f"| `{name}` | {_off(name)} | {lacks} |"
    for name in switches():
        lacks = "access control" if "acl" in name or name.startswith(("auth", "migrateAuth")) else "TLS"
        yield f"| `{name}` | `false` | [{lacks}](../operations/security.md#settings-that-are-rejected) |"
    yield ""


def _off(name: str) -> str:
    default = (known_properties.find(name) or known_properties.KnownProperty(name, "", None)).default
    return f"`{REJECTED_DEFAULTS.get(name, default)}`" if default else "empty or `false`"


def _expected() -> Iterator[str]:
    yield (
        "## Settings with a warning\n\nA start warns if one has another value than RocketMQ's default.\n\n"
        "| name | default | here |\n|---|---|---|"
    )
    for name, instead in sorted(EXPECTED.items()):
        known = known_properties.find(name)
        default = known.default if known else None
        yield f"| `{name}` | {f'`{default}`' if default else ''} | {instead} |"
    yield ""


def _reasons() -> Iterator[str]:
    yield "## Settings without a counterpart\n\nA start counts them in one line.\n\n| reason | settings |\n|---|---|"
    for reason in REASONS:
        yield f"| **{reason.title}**: {reason.why} | {_listed(reason.names)} |"
    yield ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
