"""Messages to systemd, for units of Type=notify: sd_notify(3) and sd_watchdog_enabled(3).

A datagram of lines to the socket that NOTIFY_SOCKET names; without the variable nothing is sent. The protocol is stable
and documented, and smaller than any package for it.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Tells systemd the state of this process.

    The watchdog is fed by a timer of the event loop: a loop that no longer turns lets systemd restart the process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_s = self._period(environment)
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False

    @staticmethod
    def _period(environment: Mapping[str, str]) -> float:
        """Return the seconds between two signs of life, 0 without a watchdog for this process."""
        period, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        if not period.isdigit() or (process and process != str(os.getpid())):
            return 0.0
        # As sd_watchdog_enabled(3) advises: half of the time after which systemd acts.
        return int(period) / _MICROSECONDS / 2

    def ready(self, status: str) -> None:
        """Report that the process serves, and feed the watchdog from now on."""
        self._send("READY=1", f"STATUS={status}")
        if self._address and self._watchdog_s:
            self._feed()

    def stopping(self, status: str) -> None:
        """Report that the process ends; systemd then looks at TimeoutStopSec instead of the watchdog."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send("STOPPING=1", f"STATUS={status}")

    def _feed(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._watchdog_s, self._feed)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A name of the abstract namespace begins with @ in the variable, and with a zero byte in the address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
                link.setblocking(False)
                link.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            if not self._failed:
                log.warning("systemd: %s was not taken by NOTIFY_SOCKET=%s: %s", lines[0], self._address, error)
            self._failed = True
        else:
            self._failed = False
