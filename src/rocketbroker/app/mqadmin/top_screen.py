"""Screen of ``mqadmin top``: the state that keys change, and the picture of a snapshot at a size."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rocketbroker.app.mqadmin.top_data import (
    BrokerFigures,
    GroupFigures,
    Snapshot,
)
from rocketbroker.app.terminal import escaped

#: Used share of a disk from which on it is shown as a warning, and as critical.
DISK_WARNING, DISK_CRITICAL = 0.75, 0.85
#: Seconds that a look may take before the screen says that it is old.
LATE_S = 2.0
_GAP = 2
_LEAST_NAME = 10


class View(Enum):
    """Lists to choose from, each by its key."""

    BROKERS = "1"
    GROUPS = "2"
    TOPICS = "3"


class Column(NamedTuple):
    """Column of a list.

    Attributes:
        title: its title.
        text: returns the cell of a row.
        key: returns what rows are sorted by.
        rank: importance: on a narrow screen columns of a high rank go first; the name has 0.
        falls: sort from the highest value down.
    """

    title: str
    text: Callable[[Any], str]
    key: Callable[[Any], Any]
    rank: int = 0
    falls: bool = True


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _broker_name(row: BrokerFigures) -> str:
    return f"{row.broker}:{row.broker_id}"


_COLUMNS: dict[View, tuple[Column, ...]] = {
    View.BROKERS: (
        Column("Broker", _broker_name, _broker_name, 0, False),
        Column("In/s", lambda row: _rate(row.in_rate), lambda row: row.in_rate, 1),
        Column("Out/s", lambda row: _rate(row.out_rate), lambda row: row.out_rate, 1),
        Column("Disk", lambda row: _share(row.disk), lambda row: row.disk or 0, 1),
        Column("Version", lambda row: row.version or "-", lambda row: row.version, 3, False),
        Column("Address", lambda row: row.addr, lambda row: row.addr, 2, False),
        Column("Cluster", lambda row: row.cluster, lambda row: row.cluster, 4, False),
        Column("Problem", lambda row: row.problem, lambda row: row.problem, 5),
    ),
    View.GROUPS: (
        Column("Group", lambda row: row.group, lambda row: row.group, 0, False),
        Column("Lag", lambda row: f"{row.lag:,}", lambda row: row.lag, 1),
        Column("Out/s", lambda row: _rate(row.out_rate), lambda row: row.out_rate, 2),
        Column("Clients", lambda row: str(len(row.clients)), lambda row: len(row.clients), 1),
        Column("Queues", lambda row: str(len(row.queues)), lambda row: len(row.queues), 3),
        Column("Problem", lambda row: row.problem, lambda row: row.problem, 5),
    ),
    View.TOPICS: (
        Column("Topic", lambda row: row.topic, lambda row: row.topic, 0, False),
        Column("In/s", lambda row: _rate(row.in_rate), lambda row: row.in_rate, 1),
        Column("Messages", lambda row: f"{row.messages:,}", lambda row: row.messages, 2),
        Column("Queues", lambda row: str(len(row.queues)), lambda row: len(row.queues), 3),
        Column("Problem", lambda row: row.problem, lambda row: row.problem, 5),
    ),
}
# Columns by which each list is sorted at first.
_FIRST_SORT = {View.BROKERS: 0, View.GROUPS: 1, View.TOPICS: 1}
_RIGHT = {"In/s", "Out/s", "Disk", "Lag", "Clients", "Queues", "Messages", "Consumed", "End", "First", "QID"}

_QUEUES: tuple[Column, ...] = (
    Column("Topic", lambda row: row.topic, lambda row: row.topic, 0, False),
    Column("Broker", lambda row: row.broker, lambda row: row.broker, 2, False),
    Column("QID", lambda row: str(row.queue_id), lambda row: row.queue_id, 1, False),
)
_OF_GROUP = (
    *_QUEUES,
    Column("End", lambda row: str(row.end), lambda row: row.end, 3),
    Column("Consumed", lambda row: str(row.consumed), lambda row: row.consumed, 3),
    Column("Lag", lambda row: f"{row.lag:,}", lambda row: row.lag, 1),
)
_OF_TOPIC = (
    *_QUEUES,
    Column("First", lambda row: str(row.first), lambda row: row.first, 2),
    Column("End", lambda row: str(row.end), lambda row: row.end, 1),
)
_CLIENTS = (
    Column("Client", lambda row: row.client_id, lambda row: row.client_id, 0, False),
    Column("Address", lambda row: row.addr, lambda row: row.addr, 2, False),
    Column("Language", lambda row: row.language, lambda row: row.language, 3, False),
    Column("Version", lambda row: row.version, lambda row: row.version, 4, False),
)


@dataclass(slots=True)
class Screen:
    """State of the screen.

    Attributes:
        view: the list.
        sort: column that each list is sorted by.
        turned: lists that are sorted the other way round.
        marked: name of the marked row of each list.
        opened: name of the row whose details are shown, empty for the list.
        scroll: first line of the details.
        wanted: part of the names that are listed, empty for all.
        typing: true while ``wanted`` is typed.
        is_paused: true while the figures are kept.
        is_over: true once q was pressed.
        failure: why the newest look failed, empty if it did not.
        age_s: age of figures that should have been replaced by now, in seconds; ``None`` while they are fresh.
        is_asking: true while servers are asked.
    """

    view: View = View.BROKERS
    sort: dict[View, int] = field(default_factory=lambda: dict(_FIRST_SORT))
    turned: set[View] = field(default_factory=set)
    marked: dict[View, str] = field(default_factory=dict)
    opened: str = ""
    scroll: int = 0
    wanted: str = ""
    typing: bool = False
    is_paused: bool = False
    is_over: bool = False
    failure: str = ""
    age_s: float | None = None
    is_asking: bool = False

    def grow_old(self, age_s: float, interval_s: float) -> bool:
        """Note the age of the figures; return true if the screen changes by it.

        Args:
            age_s: seconds since the end of the last look that succeeded.
            interval_s: seconds from the end of one look to the begin of the next.
        """
        before, self.age_s = self.age_s, age_s if age_s > interval_s + LATE_S else None
        return before is not None or self.age_s is not None

    def rows(self, snapshot: Snapshot) -> list[Any]:
        """Return the rows of the list in order."""
        column = _COLUMNS[self.view][self.sort[self.view]]
        listed = [row for row in _listed(snapshot, self.view) if self.wanted.lower() in _name(row).lower()]
        return sorted(sorted(listed, key=_name), key=column.key, reverse=column.falls != (self.view in self.turned))

    def press(self, key: str, snapshot: Snapshot, page: int = 10) -> None:
        """Change the state by a key.

        Args:
            key: a character, or the name of a key of ``rocketbroker.app.mqadmin.top``.
            snapshot: the figures on the screen.
            page: rows of a page.
        """
        if self.typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif key in {view.value for view in View}:
            self.view, self.opened, self.wanted = View(key), "", ""
        elif key in {"escape", "backspace", "left"}:
            self.opened, self.wanted = "", "" if not self.opened else self.wanted
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key == "/" and not self.opened:
            self.typing, self.wanted = True, ""
        elif key == "s":
            self.sort[self.view] = (self.sort[self.view] + 1) % len(_COLUMNS[self.view])
            self.turned.discard(self.view)
        elif key == "r":
            self.turned ^= {self.view}
        elif key in {"enter", "right"}:
            if (at := self._at(self.rows(snapshot))) is not None:
                self.opened, self.scroll = _name(self.rows(snapshot)[at]), 0
        else:
            self._move(key, snapshot, page)

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.wanted = False, ""
        elif key == "backspace":
            self.wanted = self.wanted[:-1]
        elif len(key) == 1 and key.isprintable():
            self.wanted += key

    def _move(self, key: str, snapshot: Snapshot, page: int) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page, "home": -(1 << 31)}
        step = {**steps, "end": 1 << 31}.get(key)
        if step is None:
            return
        if self.opened:
            self.scroll = max(self.scroll + step, 0)
            return
        rows = self.rows(snapshot)
        if (at := self._at(rows)) is not None:
            self.marked[self.view] = _name(rows[min(max(at + step, 0), len(rows) - 1)])

    def _at(self, rows: Sequence[Any]) -> int | None:
        """Return the place of the marked row: the first one if it is gone, None without rows."""
        names = [_name(row) for row in rows]
        if not names:
            return None
        marked = self.marked.get(self.view)
        return names.index(marked) if marked in names else 0

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """Return the screen for a snapshot: at most ``height`` lines of at most ``width`` columns."""
        head = [*_flow(_summary(snapshot, self._age()), width), self._tabs(snapshot, width)]
        if self.failure:
            head.append(_cut(f"no new figures: {self.failure}", width, "bold red"))
        foot = _flow([(word, "dim") for word in self._help()], width)
        room = max(height - len(head) - len(foot), 2)
        opened = next((row for row in _listed(snapshot, self.view) if _name(row) == self.opened), None)
        body = self._list(snapshot, width, room) if opened is None else self._details(opened, width, room)
        body += [Text()] * (room - len(body))
        return [*head, *body, *foot][:height]

    def _age(self) -> list[tuple[str, str]]:
        if self.age_s is None:
            return []
        late = ", an answer is late" if self.is_asking else ""
        return [(f"{self.age_s:,.0f} s old{late}", "bold yellow")]

    def _tabs(self, snapshot: Snapshot, width: int) -> Text:
        tabs = Text(no_wrap=True)
        for view in View:
            tabs.append(f"{view.value} {view.name.title()}", "bold reverse" if view is self.view else "")
            tabs.append("  ")
        if self.opened:
            tabs.append(escaped(self.opened), "bold")
        elif self.typing or self.wanted:
            tabs.append(f"/{escaped(self.wanted)}{'_' if self.typing else ''}", "bold")
        if self.is_paused:
            tabs.append(" paused", "bold yellow")
        asked = {View.GROUPS: snapshot.groups_asked, View.TOPICS: snapshot.topics_asked}.get(self.view)
        listed = len(_listed(snapshot, self.view))
        if asked is not None and asked < listed:
            tabs.append(f" {asked} of {listed:,} asked each time", "dim")
        tabs.truncate(width, overflow="ellipsis")
        return tabs

    def _help(self) -> list[str]:
        if self.typing:
            return ["type a part of a name", "enter keep", "esc all"]
        if self.opened:
            return ["q quit", "esc back", "up/down scroll", "space pause"]
        column = _COLUMNS[self.view][self.sort[self.view]].title
        return ["q quit", "1-3 list", f"s sort ({column})", "r turn", "/ find", "enter open", "space pause"]

    def _list(self, snapshot: Snapshot, width: int, room: int) -> list[Text]:
        rows = self.rows(snapshot)
        if not rows:
            nothing = f"none with {self.wanted!r} in its name" if self.wanted else f"no {self.view.name.lower()}"
            return [_cut(nothing, width, "dim")]
        at = self._at(rows) or 0
        first = max(min(at - (room - 1) // 2, len(rows) - (room - 1)), 0)
        shown = rows[first : first + room - 1]
        column = _COLUMNS[self.view][self.sort[self.view]]
        lines = grid(_COLUMNS[self.view], shown, width, column.title)
        for row, line in zip(shown, lines[1:], strict=True):
            line.stylize(_style(row))
        lines[1 + at - first].stylize("reverse")
        return lines

    def _details(self, row: Any, width: int, room: int) -> list[Text]:
        """Return what is known of a row, from the line to which it was scrolled."""
        lines = [_cut(row.problem, width, "bold red")] if row.problem else []
        if isinstance(row, BrokerFigures):
            lines += [_cut(f"{name}: {value}", width) for name, value in sorted(row.runtime.items())]
        elif isinstance(row, GroupFigures):
            lines += (
                grid(_CLIENTS, row.clients, width) if row.clients else [_cut("no client is online", width, "yellow")]
            )
            queues = sorted(row.queues, key=lambda queue: -(queue.lag or 0))
            lines += [Text(), *grid(_OF_GROUP, queues, width)]
        else:
            lines += grid(_OF_TOPIC, row.queues, width)
        self.scroll = max(min(self.scroll, len(lines) - room), 0)
        return lines[self.scroll : self.scroll + room]


def _listed(snapshot: Snapshot, view: View) -> Sequence[Any]:
    if view is View.BROKERS:
        return snapshot.brokers
    return snapshot.groups if view is View.GROUPS else snapshot.topics


def _name(row: Any) -> str:
    if isinstance(row, BrokerFigures):
        return _broker_name(row)
    name: str = row.group if isinstance(row, GroupFigures) else row.topic
    return name


def _style(row: Any) -> str:
    """Return the colour of a row: red for what is down or full, yellow for what soon may be."""
    disk = row.disk or 0 if isinstance(row, BrokerFigures) else 0
    if row.problem or disk >= DISK_CRITICAL:
        return "red"
    waits = isinstance(row, GroupFigures) and row.lag and not row.clients
    return "yellow" if waits or disk >= DISK_WARNING else ""


def _summary(snapshot: Snapshot, age: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the figures of the whole cluster, each with its style, and their age after the time."""
    brokers = snapshot.brokers
    down = sum(not row.runtime for row in brokers)
    disk = max((row.disk for row in brokers if row.disk is not None), default=None)
    clients = {client.client_id for row in snapshot.groups for client in row.clients}
    # A slave stores what its master has counted already.
    stored = sum(row.in_rate for row in brokers if row.broker_id == 0)
    return [
        (time.strftime("%H:%M:%S", time.localtime(snapshot.time / 1000)), "bold"),
        *age,
        (f"brokers {len(brokers)}" + (f" ({down} down)" if down else ""), "bold red" if down else ""),
        (f"in {_rate(stored)}/s", ""),
        (f"out {_rate(sum(row.out_rate for row in brokers))}/s", ""),
        (f"lag {sum(row.lag for row in snapshot.groups):,}", ""),
        (f"clients {len(clients)}", ""),
        (f"disk {_share(disk)}", "bold red" if (disk or 0) >= DISK_CRITICAL else ""),
    ]


def _flow(words: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Return styled words with gaps between them, folded to a width."""
    lines = [Text(no_wrap=True)]
    for word, style in words:
        if lines[-1] and cell_len(lines[-1].plain) + _GAP + cell_len(word) > width:
            lines.append(Text(no_wrap=True))
        if lines[-1]:
            lines[-1].append(" " * _GAP)
        lines[-1].append(escaped(word), style)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _cut(text: str, width: int, style: str = "") -> Text:
    line = Text(escaped(text), style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def grid(columns: Sequence[Column], rows: Sequence[Any], width: int, sorted_by: str = "") -> list[Text]:
    """Return a line of titles and one for each row.

    Columns go, those of the highest rank first, until the rest fit; then the name is cut.

    Args:
        columns: the columns; the first one has the names.
        rows: the rows.
        width: columns of the screen.
        sorted_by: title of the column that the rows are sorted by.
    """
    cells = {column.title: [escaped(column.text(row)) for row in rows] for column in columns}
    shown = [column for column in columns if column.rank < 5 or any(cells[column.title])]
    widths = {column.title: max(map(cell_len, [column.title, *cells[column.title]])) for column in shown}

    def needed() -> int:
        name, *others = shown
        least = min(widths[name.title], _LEAST_NAME)
        return least + sum(widths[column.title] + _GAP for column in others)

    while len(shown) > 2 and needed() > width:
        shown.remove(max(shown, key=lambda column: column.rank))
    name = shown[0].title
    widths[name] = max(min(widths[name], width - needed() + min(widths[name], _LEAST_NAME)), 1)
    header = Text(no_wrap=True)
    for at, column in enumerate(shown):
        style = "bold underline" if column.title == sorted_by else "bold"
        header.append(" " * _GAP if at else "").append(_padded(column.title, column, widths), style)
    lines = [header]
    for number in range(len(rows)):
        texts = [_padded(cells[column.title][number], column, widths) for column in shown]
        lines.append(Text((" " * _GAP).join(texts), no_wrap=True))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _padded(text: str, column: Column, widths: dict[str, int]) -> str:
    width = widths[column.title]
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    blanks = " " * (width - cell_len(text))
    return blanks + text if column.title in _RIGHT else text + blanks
