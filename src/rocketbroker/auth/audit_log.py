"""Audit log: administrative changes and refused requests, a JSON object a line. RocketMQ has none.

A server writes it to a file of its own, ``broker_audit.log``, ``namesrv_audit.log`` or ``proxy_audit.log``, beside its
other log files. Without log files nothing is made.

Strangers determine how many requests are refused. Within 10 s a refusal has one line, however often it comes; the line
after these seconds counts the others. Of more than 100 different refusals, or 20 from one address, only the number is
kept: a flood takes at most some 100 KB in 10 s of the renamed files, and one address does not hide what others do.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import shown
from rocketbroker.common.lifecycle import TaskOwner

#: Logger of the lines, which are whole documents.
AUDIT_LOGGER: Final = "rocketbroker.audit_log"

_PERIOD_S: Final = 10.0
_MOST_REFUSALS: Final = 100
_MOST_OF_ADDRESS: Final = 20
_MOST_CHARACTERS: Final = 1_000


class Source(NamedTuple):
    """Sender of a request: the user, ``None`` without access control or before it is known, and ``ip:port``."""

    user: str | None
    address: str


class _Refusal(NamedTuple):
    """A refused request, as often as it comes: the user, the IP address, the request and the reason."""

    user: str | None
    host: str
    request: int | str
    reason: str


class AuditLog:
    """Audit log of one server; all methods are for the event loop.

    Args:
        server: name of the server in the lines.
        clock: source of their times.
    """

    def __init__(self, server: str, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._log = logging.getLogger(AUDIT_LOGGER)
        self._tasks = TaskOwner("AuditLog")
        # Refusals of these 10 s that have a line, with the number of those without.
        self._repeated: Counter[_Refusal] = Counter()
        # Those of each address, and the number of refusals beyond the bounds.
        self._lines: Counter[str] = Counter()
        self._others: Counter[str] = Counter()

    @property
    def is_on(self) -> bool:
        """True if lines are written: the server has log files, and ``auditLogEnable`` is true."""
        return self._log.isEnabledFor(logging.INFO)

    async def start(self) -> None:
        """Count refusals that come again every 10 s."""
        if self.is_on:
            self._tasks.every(_PERIOD_S, self.end_period, "audit log")

    async def stop(self) -> None:
        """Write the counts of the last seconds."""
        await self._tasks.stop()
        self.end_period()

    def changed(self, source: Source, code: int, facts: Mapping[str, object]) -> None:
        """Write a line on a change, or on a try.

        Args:
            source: who made it.
            code: the request code.
            facts: ``fields`` of the request, ``result``, ``remark``, and the state ``before`` and ``after``.
        """
        self._write("change", {"user": source.user, "address": source.address, **_request(code)}, facts)

    def refused(self, source: Source, request: int | str, reason: str) -> None:
        """Write a line on a refused request, or count it if the same was refused in these 10 s.

        Args:
            source: who sent it.
            request: the request code, the method of a gRPC call, or another name.
            reason: the reason, as the peer gets it.
        """
        if not self.is_on:
            return
        user = None if source.user is None else shown(source.user)
        refusal = _Refusal(user, source.address.rpartition(":")[0], request, reason[:_MOST_CHARACTERS])
        if refusal in self._repeated:
            self._repeated[refusal] += 1
        elif len(self._repeated) >= _MOST_REFUSALS or self._lines[refusal.host] >= _MOST_OF_ADDRESS:
            # Addresses beyond a bound are counted together, too.
            known = refusal.host in self._others or len(self._others) < _MOST_REFUSALS
            self._others[refusal.host if known else ""] += 1
        else:
            self._lines[refusal.host] += 1
            self._repeated[refusal] = 0
            self._refusal(refusal, source.address, {})

    def refused_request(self, connection: Connection, code: int, reason: str) -> None:
        """Write a line on a request that its address may not send."""
        self.refused(Source(None, connection.remote_address), code, reason)

    def end_period(self) -> None:
        """Write how often the refusals of the last seconds came again."""
        for refusal, number in self._repeated.items():
            if number:
                self._refusal(refusal, refusal.host, {"times": number})
        for host, number in self._others.items():
            known = {"address": host} if host else {}
            self._write("refused", known, {"reason": "other refusals in these 10 s", "times": number})
        self._repeated.clear()
        self._lines.clear()
        self._others.clear()

    def _refusal(self, refusal: _Refusal, address: str, facts: Mapping[str, object]) -> None:
        known = {"user": refusal.user, "address": address, **_request(refusal.request)}
        self._write("refused", known, {"reason": refusal.reason, **facts})

    def _write(self, event: str, known: Mapping[str, object], facts: Mapping[str, object]) -> None:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(self._clock.time_ms() / 1000)
            .astimezone()
            .isoformat(timespec="milliseconds"),
            "server": self._server,
            "event": event,
            **known,
            **facts,
        }
        # ASCII alone: no character of a peer can break a line or steer a terminal.
        self._log.info("%s", json.dumps({name: value for name, value in line.items() if value is not None}))


def _request(request: int | str) -> dict[str, object]:
    """Return the name of a request, with its code if it has one."""
    if isinstance(request, str):
        return {"request": request}
    try:
        return {"request": RequestCode(request).name, "code": request}
    except ValueError:
        return {"code": request}
