"""Page of settings."""

from pydantic.fields import FieldInfo

from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.fields import ConfigModel, bounds, fields_by_name, text_of, trait_of, type_word
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.transport_config import TransportConfig

INTRODUCTION = """\
# Configuration

For operators: every setting that acts, with its type, range, default and unit. `mqbroker -c FILE` and
`mqnamesrv -c FILE` read Java properties files in RocketMQ's names.

- `-n` overrides the file, the file overrides the environment variable `NAMESRV_ADDR`, and that overrides the defaults
  below, which are those of RocketMQ 5.5.0. `-p` prints every setting with its value, `-m` the important ones.
- Settings marked *hot* can be changed while the process runs, by `updateBrokerConfig` and `updateNamesrvConfig` of
  [mqadmin](mqadmin.md#updatebrokerconfig) or of Apache's. A change is checked, applied as a whole or not at all, and
  then written to the file given with `-c`. If that write fails, the answer says so, and the change lasts until the
  process stops.
- Without `-c` a change is written to `config/broker.properties` in the store, or to `configStorePath` of the name
  server. Give that file with `-c` at the next start to keep the change.
- Settings marked † are not plain properties of RocketMQ 5.5.0: they are rocketbroker's own, or RocketMQ has them as a
  system property, or only earlier versions had them.

Errors in a file are never ignored:

| in the file | result |
|---|---|
| a property of RocketMQ [that changes data or deployment][rejected] | error, unless it is off |
| one [that you may count on][expected], without effect here | warning, unless it has the default |
| one [without a counterpart][silent] here | counted in one line |
| a setting of another process, such as the name server's | warning, unless it has the default |
| an unknown property | error with file, line and the nearest known name |
| an invalid value | error with the valid values |
| [a switch of access control or TLS](../operations/security.md#settings-that-are-rejected) | error if it is on |
| `brokerId` of another role: not 0 for a master, 0 for a slave | error |

[rejected]: ../coming-from-rocketmq/settings.md#settings-that-are-rejected
[expected]: ../coming-from-rocketmq/settings.md#settings-with-a-warning
[silent]: ../coming-from-rocketmq/settings.md#settings-without-a-counterpart
"""

SECTIONS: tuple[tuple[str, str, type[ConfigModel]], ...] = (
    ("Broker", "BrokerConfig", BrokerConfig),
    ("Store", "MessageStoreConfig", MessageStoreConfig),
    ("Name server", "NamesrvConfig", NamesrvConfig),
    ("Transport (broker and name server)", "NettyServerConfig", TransportConfig),
    ("gRPC port (rmq-proxy.json)", "ProxyConfig", ProxyConfig),
)


def render() -> str:
    """Return the whole page; it depends on the models only, not on the machine."""
    parts = [INTRODUCTION]
    for title, java_class, model in SECTIONS:
        rows = [_row(name, field) for name, (_, field) in fields_by_name(model).items()]
        head = "| name | type | default | unit | hot | meaning |\n|---|---|---|---|---|---|\n"
        parts.append(f"## {title}\n\nIn RocketMQ: `{java_class}`.\n\n{head}{''.join(rows)}")
    return "\n".join(parts)


def _row(name: str, field: FieldInfo) -> str:
    trait = trait_of(field)
    cells = (
        f"`{name}`{' †' if trait.own else ''}",
        _type_cell(field),
        _default_cell(field),
        trait.unit,
        "hot" if trait.hot else "",
        str(field.description),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _type_cell(field: FieldInfo) -> str:
    low, high = bounds(field)
    words = trait_of(field).takes
    if words:
        return f"{type_word(field)}: {words}"
    return type_word(field) + (f", {low} to {high}" if low is not None else "")


def _default_cell(field: FieldInfo) -> str:
    shown = trait_of(field).shown_default
    if shown is not None:
        return shown
    default = text_of(field.default)
    return f"`{default}`" if default else "empty"
