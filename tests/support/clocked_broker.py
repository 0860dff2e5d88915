"""A broker of ours as a process whose clock the test sets (rocketbroker.testing.clocked_broker)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.our_servers import OurServer, OurServers, wait_serving

MODULE = "testing.clocked_broker"
ANSWER_LIMIT = 60  # seconds


@dataclass(slots=True)
class ClockedBroker(OurServer):
    """A broker and its clock; clients use the system's clock."""

    def set_clock(self, command: str) -> int:
        """Send the clock a command (``step S``, ``set MS``, ``advance S``, ``speed F``); return its new time in ms."""
        known = self._answers()
        pipe = self.process.stdin
        assert pipe is not None
        pipe.write(f"{command}\n".encode())
        pipe.flush()
        self.wait_until(lambda: len(self._answers()) > len(known), ANSWER_LIMIT, f"answer {command!r}")
        word, _, rest = self._answers()[len(known)].partition("\t")
        assert word == "CLOCK", rest
        return int(rest)

    def time_ms(self) -> int:
        """Return the time of its clock in ms."""
        return self.set_clock("step 0")

    def _answers(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("CLOCK")]


def clocked_broker(
    servers: OurServers,
    namesrv: str,
    store: Path | None = None,
    *,
    port: int = 0,
    clock: Sequence[str] = (),
    **settings: str | int,
) -> ClockedBroker:
    """Start a broker after setting its clock by ``clock``, and wait until it is registered."""
    arguments = [word for command in clock for word in ("--clock", command)]
    launched = servers.launch_broker(namesrv, store, settings, port, module=MODULE, arguments=arguments)
    broker = ClockedBroker(launched.name, launched.process, launched.log, launched.port, launched.store, launched.host)
    wait_serving(broker, namesrv)
    return broker
