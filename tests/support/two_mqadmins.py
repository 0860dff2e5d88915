"""Apache's mqadmin and ours, with the same command lines at the same clusters.

A case names a command line, and the values to compare in the texts that both tools print:

    Case("topicClusterList -t {topic}", lines)
    Case("updateTopicPerm -b {broker} -t {topic} -p 4", lines, before=("updateTopicPerm -b {broker} -t {topic} -p 6",))
    Case("statsAll -t NoTopic", fails=True)      # Apache's tool prints an error, ours too, with exit code 1 or 2

``{broker}``, ``{namesrv}``, ``{topic}``, ``{group}``, ``{file}`` and ``{folder}`` are filled in. ``-n`` is added.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.codec.remoting import fastjson
from tests.support.java import Java


class Ran(NamedTuple):
    """Outcome of a command: its output on both streams."""

    out: str
    err: str
    failed: bool


class ApacheTool:
    """Apache's mqadmin 5.5.0."""

    def __init__(self, java: Java) -> None:
        self._shell = java.admin_shell()

    def run(self, words: list[str]) -> Ran:
        """Run a command."""
        done = self._shell.run(words)
        return Ran(done.out, done.err, done.failed)


def run_ours(words: list[str]) -> Ran:
    """Run a command of our mqadmin in this process."""
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(done.stdout, done.stderr, done.exit_code != 0)


# -- values in a text


def lines(text: str) -> list[str]:
    """Return the lines that are not empty, without blanks at the ends."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def any_order(text: str) -> list[str]:
    """Return the lines that are not empty, sorted."""
    return sorted(lines(text))


def json_value(text: str) -> Any:
    """Return the JSON value that follows the first brace, as Apache's fastjson writes it."""
    return fastjson.loads(text[text.index("{") :].encode())


def table(*volatile: str) -> Callable[[str], tuple[list[str], list[list[str]]]]:
    """Return a reader of a table: its titles, and its rows in any order without the named columns and empty cells.

    The table ends at an empty line; lines of dashes are left out. Blanks separate cells, except behind a comma. Name
    every column that follows one with empty cells.
    """

    def read(text: str) -> tuple[list[str], list[list[str]]]:
        head, *body = lines(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0])
        titles = [title.strip() for title in head.split("#")[1:]]
        left_out = {titles.index(title) for title in volatile}
        cells = [
            [cell for at, cell in enumerate(re.split(r"(?<!,)\s+", line)) if at not in left_out]
            for line in body
            if set(line) != {"-"}
        ]
        return titles, sorted(cells)

    return read


def settings(*, values: bool = True) -> Callable[[str], Mapping[str, str]]:
    """Return a reader of lines ``name = value`` or ``name : value``; with ``values=False`` of the names alone."""

    def read(text: str) -> Mapping[str, str]:
        pairs = (re.split(r"\s*[=:](?:\s+|$)", line, maxsplit=1) for line in lines(text))
        return {pair[0]: pair[1].strip() if values else "" for pair in pairs if len(pair) == 2}

    return read


class Case(NamedTuple):
    """A command line for both tools.

    Attributes:
        command: its words.
        values: returns what is compared, from the text of a tool.
        before: commands of ours that run before each of the two, to put the state back.
        fails: both tools are to fail; the texts are not compared.
        only_ours: ours fails where Apache's tool reports success.
        only_apache: Apache's tool fails, by an error of its own, where ours succeeds.
        soak: it takes long, and runs with --soak only.
        writes: a file in ``{folder}`` that both write; it is compared in place of the text.
    """

    command: str
    values: Callable[[str], Any] = lines
    before: tuple[str, ...] = ()
    fails: bool = False
    only_ours: bool = False
    only_apache: bool = False
    soak: bool = False
    writes: str = ""

    def fails_with(self, tool: str) -> bool:
        """Return true if the tool, ``ours`` or ``apache``, is to fail."""
        return self.fails or (self.only_ours if tool == "ours" else self.only_apache)

    def words(self, command: str, places: Mapping[str, str]) -> list[str]:
        """Return the words of a command with places filled in; a word with a blank is written with ``~``."""
        filled = [word.format(**places).replace("~", " ") for word in command.split()]
        return [*filled, "-n", places["namesrv"]]
