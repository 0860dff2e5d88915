"""Apache's mqadmin 5.5.0 in a JVM that runs one command after the other: starting one takes longer than a command."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.java_lines import rows
from tests.support.java_process import JavaProcess

LIMIT_S = 200.0


class Printed(NamedTuple):
    """Output of a command on its two streams."""

    out: str
    err: str

    @property
    def failed(self) -> bool:
        """True if the command reports so, or begins with a usage or `[error]`: its exit code is always 0."""
        return "SubCommandException" in self.err or self.out.startswith(("usage: ", "[error]"))


class AdminShell:
    """Commands for the driver AdminShell; ``file`` is the one that it was started with, and reads them from."""

    def __init__(self, process: JavaProcess, file: Path) -> None:
        self._process = process
        self._file = file
        self._number = -1
        process.wait_for("STARTED")

    def run(self, words: Sequence[str], limit_s: float = LIMIT_S) -> Printed:
        """Run a command, and return what it printed."""
        self._number += 1
        with self._file.open("a") as file:
            file.write("\t".join(words) + "\n")

        def found() -> list[list[str]]:
            return [row for row in rows(self._process.text(), "RAN") if int(row[0]) == self._number]

        self._process.wait_until(lambda: bool(found()), limit_s, f"run {words}")
        return Printed(*(base64.b64decode(text[1:]).decode() for text in found()[0][1:]))
