"""Page of request codes."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rocketbroker
from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, namesrv_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.request_code import RequestCode

_SOURCES = Path(rocketbroker.__file__).parent

_INTRODUCTION = """\
# Request codes

For contributors and authors of clients: find the file that answers a request, who may send it, and its header. The page
is generated from the tables that the servers run with. Names and numbers are those of RocketMQ's `RequestCode`. A code
that is not listed gets the answer REQUEST_CODE_NOT_SUPPORTED (3).

- *file*: the family that answers it, below `src/rocketbroker/processor/`. The method has the name of the code, in small
  letters; the send and pull paths have a class each, whose method is `process`.
- *audience*: the least kind of peer that may send it in [protected mode](../operations/security.md): a client, a
  broker, or administration.
- *header*: the typed header, in `src/rocketbroker/codec/remoting/headers/`. A dash means that the request has none, or
  that its fields are read without one.

The broker itself sends NOTIFY_CONSUMER_IDS_CHANGED (40) to the clients of a group, CHECK_TRANSACTION_STATE (39) to a
producer of a group with an open transaction, and GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY (309) to
the client that an administrator names.
"""

# Title, file of the table, its routes.
Section = tuple[str, str, dict[int, Route]]


class Row(NamedTuple):
    """One code as documented."""

    code: int
    name: str
    audience: str
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
    named = route.process.__name__ != "process"
    return Row(
        route.code,
        RequestCode(route.code).name,
        route.audience.word,
        Path(inspect.getfile(processor)).relative_to(_SOURCES / "processor"),
        route.process.__name__,
        header.__name__ if header else "",
        _first_paragraph(route.process if named else processor),
    )


def _first_paragraph(processor: object) -> str:
    text = inspect.getdoc(processor) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def render() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(line for section in sections() for line in _section(*section))])


def _section(title: str, table: str, routes: dict[int, Route]) -> Iterator[str]:
    yield f"## {title}\n\n{len(routes)} codes, from {table}.\n"
    yield "| code | name | audience | file | header | meaning |\n|---|---|---|---|---|---|"
    for row in rows(routes):
        header = f"`{row.header}`" if row.header else "-"
        yield f"| {row.code} | {row.name} | {row.audience} | `{row.file}` | {header} | {row.meaning} |"
    yield ""
