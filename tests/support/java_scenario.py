"""A JVM that does what a test says, step by step (tests/interop/java/Scenario.java and Pop.java)."""

from collections.abc import Callable
from pathlib import Path

from tests.support.java import Java
from tests.support.java_lines import Got, Sent, got, rows, sent
from tests.support.java_toolchain import JavaError

# A group's retry topic comes to be with its first heartbeat; so its client has the queue at once.
OFTEN = {"rocketmq.client.rebalance.waitInterval": "1000", "rocketmq.client.rebalance.lockInterval": "1000"}
STEP_LIMIT = 120  # seconds, with two cores and other work


class Scenario:
    """Official clients in one JVM.

    Args:
        java: starts it.
        namesrv: "host:port" of the name server.
        client: the version of the official client.
        driver: ``Pop`` for what only clients of 5.x know.
        options: of all clients, such as ``trace=1``.
    """

    def __init__(
        self, java: Java, namesrv: str, client: str = "5.5.0", driver: str = "Scenario", **options: object
    ) -> None:
        self._file = Path(java.home / f"steps-{len(java.started)}.txt")
        self._file.touch()
        self._number = 0
        more = [f"{name}={value}" for name, value in options.items()]
        self.process = java.start(
            driver, f"namesrv={namesrv}", f"file={self._file}", *more, client=client, properties=OFTEN
        )
        self.process.wait_for("STARTED")

    def do(self, verb: str, **options: object) -> None:
        """Run one step and wait until it is done.

        Raises:
            JavaError: it failed.
        """
        number = self._number
        self._number += 1
        words = [verb, *(f"{name}={value}" for name, value in options.items())]
        with self._file.open("a") as file:
            file.write("\t".join(words) + "\n")

        def ended(word: str) -> list[list[str]]:
            return [row for row in rows(self.process.text(), word) if int(row[0]) == number]

        self.process.wait_until(lambda: bool(ended("DONE") or ended("FAILED")), STEP_LIMIT, f"do {words}")
        if failed := ended("FAILED"):
            raise JavaError(f"{words}: {failed[0][1]}\n{self.process.text()[-4000:]}")

    def got(self, name: str) -> list[Got]:
        """Return the messages of the consumer with that name, in order."""
        return got(self.process.text(), f"GOT-{name}")

    def wait_got(self, name: str, condition: Callable[[list[Got]], bool], what: str) -> list[Got]:
        """Wait until the messages of a consumer are as expected; return them."""
        self.process.wait_until(lambda: condition(self.got(name)), STEP_LIMIT, f"give {what} to {name}")
        return self.got(name)

    def dead(self) -> list[Got]:
        """Return the dead letters that were read."""
        return got(self.process.text(), "DEAD")

    def sent(self) -> list[Sent]:
        """Return the answers to what was sent."""
        return sent(self.process.text())

    def lines(self, word: str) -> list[list[str]]:
        """Return the fields of the lines that begin with a word."""
        return rows(self.process.text(), word)
