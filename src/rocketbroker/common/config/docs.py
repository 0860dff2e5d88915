"""Page of settings."""

from pydantic.fields import FieldInfo

from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.describe import bounds, fields_by_name, text_of, type_word
from rocketbroker.common.config.fields import ConfigModel, trait_of
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.transport_config import TransportConfig

INTRODUCTION = """\
# Configuration

`mqbroker -c FILE` and `mqnamesrv -c FILE` read Java properties files in RocketMQ's names. `-n` wins over the file, the
file over the environment variable `NAMESRV_ADDR`, and that over the defaults below, which are those of RocketMQ 5.5.0.
`-p` prints every setting with its value, `-m` the important ones.

- A property that RocketMQ 4.x or 5.x has and this version does not act on is named in a warning.
- A property that nobody knows is an error that names file, line and the nearest known name.
- A value that is not valid is an error that says what would be right; nothing is ignored in silence.
- `aclEnable`, `authenticationEnabled`, `authorizationEnabled`, `migrateAuthFromV1Enabled`, `useTLS`, `tlsEnable` and
  `tls.*` are refused where they turn something on, until there is access control and TLS; off they are taken.
- `brokerRole=SLAVE` and `brokerRole=SYNC_MASTER` are refused until there is replication.
- Settings marked *hot* can be changed while the process runs (by `updateBrokerConfig` and `updateNamesrvConfig` of
  Apache's `mqadmin`): the change is checked, and applied at once, all of it or nothing. Then it is written to the file
  given by `-c`; where that fails the answer says so, and the change holds until the process stops. Without `-c` it is
  written to `config/broker.properties` in the store, or to `configStorePath` of the name server; give that file by
  `-c` at the next start to keep it.
- Settings marked † are not plain properties of RocketMQ 5.5.0: they are rocketbroker's own, or RocketMQ takes them as
  a system property, or only earlier versions had them.
"""

SECTIONS: tuple[tuple[str, str, type[ConfigModel]], ...] = (
    ("Broker", "BrokerConfig", BrokerConfig),
    ("Store", "MessageStoreConfig", MessageStoreConfig),
    ("Name server", "NamesrvConfig", NamesrvConfig),
    ("Transport (broker and name server)", "NettyServerConfig", TransportConfig),
)


def render() -> str:
    """Return the whole page, from the models alone: the same on every machine."""
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
