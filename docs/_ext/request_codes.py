"""Page of RocketMQ's request codes: those that are served, and the state of the others."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rocketbroker
from docs._ext.request_rights import rights_text
from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.request_code import RequestCode

_SOURCES = Path(rocketbroker.__file__).parent

_INTRODUCTION = """\
# Request codes

For those who move a client, a proxy or a tool from Apache RocketMQ: find out which requests are answered. For
contributors and authors of clients: find the file that answers a request, who may send it, and its header. The page is
generated from the tables that the servers run with. Names and numbers are those of `RequestCode` in RocketMQ 5.5.0. A
code that no server has gets the answer REQUEST_CODE_NOT_SUPPORTED (3); the [last table](#not-served) names its part of
RocketMQ.

- *file*: the family that answers it, below `src/rocketbroker/processor/`. The method has the name of the code, in small
  letters; a method for several codes has the name of one of them.
- *audience*: the least kind of peer that may send it in [protected mode](../operations/security.md): a client, a
  broker, or administration.
- *rights*: those that a user needs in a server with [access control](../operations/security.md#let-only-users-in).
  `<topic>` and the like stand for the field of the header or body that has the name, `<cluster>` for the server's own.
  A field that is left out needs nothing; without any, the actions count on `Cluster:<cluster>`. A retry topic counts as
  its group.
- *header*: the typed header, in `src/rocketbroker/codec/remoting/headers/`. A dash means that the request has none, or
  that its fields are read without one.

The broker itself sends NOTIFY_CONSUMER_IDS_CHANGED (40) to the clients of a group, CHECK_TRANSACTION_STATE (39) to a
producer of a group with an open transaction, and GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY (309) to
the client that an administrator names.
"""

# Requests that servers send; a client answers them.
SENT = {
    RequestCode.CHECK_TRANSACTION_STATE: "broker to a producer",
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "broker to the clients of a group",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "broker to the clients of a group",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "broker to the clients of a group",
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "broker to the client that sent the request",
}
# Part of RocketMQ by range of codes; the first range with the code counts.
_PARTS = (
    (range(22, 24), "RocketMQ 3, unused since"),
    (range(60, 62), "replication of timer messages"),
    (range(354, 356), "RocksDB stores"),
    (range(513, 514), "static topics"),
    (range(902, 904), "broker container"),
    (range(906, 909), "replication"),
    (range(1007, 1009), "replication"),
    (range(1001, 1019), "controller"),
    (range(2001, 2005), "cold data"),
    (range(3001, 3011), "access control"),
    (range(5001, 5002), "RocksDB stores"),
    (range(200_070, 200_080), "lite topics"),
    (range(200_050, 200_152), "consumption by POP"),
)

# Title, file of the table, its routes.
Section = tuple[str, str, dict[int, Route]]


class Row(NamedTuple):
    """One code as documented."""

    code: int
    name: str
    audience: str
    rights: str
    file: Path
    method: str
    header: str
    meaning: str


def sections() -> tuple[Section, Section]:
    """Return the tables of both servers as wired at run time, without opening or starting anything."""
    # Neither the port nor the folder is used before ``start``.
    namesrv = NamesrvController(namesrv_settings(0, Path()))
    broker = BrokerController(broker_settings(0, Path(), ""))
    return (
        ("Name server", "`namesrv_table.py`", namesrv.routes),
        ("Broker", "`broker_table.py`", broker.routes),
    )


def rows(routes: dict[int, Route]) -> list[Row]:
    """Return the codes in ascending order."""
    return [_row(routes[code]) for code in sorted(routes)]


def _row(route: Route) -> Row:
    processor = type(getattr(route.process, "__self__"))  # noqa: B009 - a bound method, which its type does not say
    header = route.header_type
    return Row(
        route.code,
        RequestCode(route.code).name,
        route.audience.word,
        rights_text(route.code),
        Path(inspect.getfile(processor)).relative_to(_SOURCES / "processor"),
        route.process.__name__,
        header.__name__ if header else "",
        _first_paragraph(route.process),
    )


def _first_paragraph(method: object) -> str:
    text = inspect.getdoc(method) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def served_codes() -> set[int]:
    """Return the codes that one of the servers answers."""
    return {code for _, _, routes in sections() for code in routes}


def state_of(code: RequestCode) -> str:
    """Return the part of RocketMQ that a code belongs to which no server answers, or the peers it is sent to."""
    if code in SENT:
        return f"sent: {SENT[code]}"
    return next((part for codes, part in _PARTS if code in codes), "unused in RocketMQ 5")


def render() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(line for section in sections() for line in _section(*section)), *_not_served()])


def _section(title: str, table: str, routes: dict[int, Route]) -> Iterator[str]:
    yield f"## {title}\n\n{len(routes)} codes, from {table}.\n"
    yield "| code | name | audience | rights | file | header | meaning |\n|---|---|---|---|---|---|---|"
    for row in rows(routes):
        header = f"`{row.header}`" if row.header else "-"
        yield f"| {row.code} | {row.name} | {row.audience} | {row.rights} | `{row.file}` | {header} | {row.meaning} |"
    yield ""


def _not_served() -> Iterator[str]:
    yield "## Not served\n\n*sent*: a request that the servers send to clients or brokers, but do not accept.\n"
    yield "| code | name | part of RocketMQ |\n|---|---|---|"
    for code in sorted(set(RequestCode) - served_codes()):
        yield f"| {code.value} | {RequestCode(code).name} | {state_of(RequestCode(code))} |"
    yield ""
