"""Apache's admin client as a driver that resets and changes consumer groups by commands."""

import time
from pathlib import Path

from tests.support.java import Java
from tests.support.java_lines import rows

LIMIT_S = 60.0


class GroupAdmin:
    """The driver GroupAdmin: Apache's admin client 5.5.0 in a JVM that is started once."""

    def __init__(self, java: Java, namesrv: str, folder: Path) -> None:
        self._file = folder / "commands.txt"
        self._file.touch()
        self._number = -1
        self._process = java.start("GroupAdmin", f"namesrv={namesrv}", f"file={self._file}")

    def ready(self) -> None:
        self._process.wait_for("STARTED")

    def call(self, *words: object) -> dict[str, dict[int, int]]:
        """Run a command; return the reported offsets by client and queue."""
        assert self._run(words) == []
        told: dict[str, dict[int, int]] = {}
        for number, client, queue_id, offset in rows(self._process.text(), "OFFSET"):
            if int(number) == self._number:
                told.setdefault(client, {})[int(queue_id)] = int(offset)
        return told

    def told(self, *words: object) -> list[str]:
        """Run a command; return the reported texts."""
        assert self._run(words) == []
        return [text for number, text in rows(self._process.text(), "TOLD") if int(number) == self._number]

    def refused(self, *words: object) -> str:
        """Run a command that fails; return why."""
        (why,) = self._run(words)
        return why

    def _run(self, words: tuple[object, ...]) -> list[str]:
        self._number += 1
        with self._file.open("a") as file:
            file.write("\t".join(map(str, words)) + "\n")

        def ended(word: str) -> list[list[str]]:
            return [row for row in rows(self._process.text(), word) if int(row[0]) == self._number]

        deadline = time.monotonic() + LIMIT_S
        while not ended("DONE") and not ended("FAILED"):
            assert time.monotonic() < deadline, f"{words} is not done within {LIMIT_S:.0f} s"
            time.sleep(0.05)
        return [why for _, why in ended("FAILED")]
