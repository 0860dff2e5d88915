"""One place for refusals of requests, calls and replication links: they are counted and entered into the audit log.

Those that lack a right are answered at once. Those without valid credentials are answered late, the later the more
often their address has failed (``failed_attempts``); ``late_refusals`` holds the answers.
"""

import logging
from typing import Final

from rocketbroker.auth.audit_log import AuditLog, Source
from rocketbroker.auth.errors import AuthenticationError, RefusalError
from rocketbroker.auth.failed_attempts import FailedAttempts
from rocketbroker.auth.late_refusals import LateRefusals
from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.event_log import RefusalLog

log = logging.getLogger(__name__)


class Refusals:
    """Refusals of one server.

    Args:
        clock: its monotonic time counts for the delays of failed attempts.

    Attributes:
        denied: requests of users who lack the right, or have lost their access since the request came, and slaves that
            gave no proof.
        failed_attempts: requests whose credentials failed, and slaves whose proof was wrong.
        late_answers: answers to them that wait.
        audit: takes each refusal, if a server has it.
    """

    def __init__(self, clock: Clock) -> None:
        self.denied = 0
        self.failed_attempts: Final = FailedAttempts(clock)
        self.late_answers: Final = LateRefusals()
        self.audit: AuditLog | None = None
        self._log = RefusalLog(log)

    def add(self, error: RefusalError, request: int | str, peer: str, *, is_attempt: bool = True) -> float:
        """Note and log a refusal; return the seconds to wait before the answer.

        Args:
            error: the reason.
            request: the request code, or the method of a gRPC call.
            peer: ``ip:port`` of the client.
            is_attempt: the credentials came with the request; false if they were right when it came.
        """
        reason = str(error)
        self._log.add(f"{_shown(request)} from {peer}: {reason}", (error.username, host_of(peer), request, reason))
        is_attempt = is_attempt and isinstance(error, AuthenticationError)
        return self._note(Source(error.username, peer), request, reason, is_attempt=is_attempt)

    def add_slave(self, reason: str, peer: str, *, is_attempt: bool) -> None:
        """Note a slave that is refused; its connection, which logs the reason, closes at once.

        Args:
            reason: the reason.
            peer: ``ip:port`` of the slave.
            is_attempt: its proof was wrong.
        """
        self._note(Source(None, peer), "HA handshake", reason, is_attempt=is_attempt)

    def _note(self, source: Source, request: int | str, reason: str, *, is_attempt: bool) -> float:
        if self.audit is not None:
            self.audit.refused(source, request, reason)
        if is_attempt:
            return self.failed_attempts.failed(host_of(source.address))
        self.denied += 1
        return 0.0


def _shown(request: int | str) -> str:
    if isinstance(request, str):
        return f"call of {request}"
    try:
        return f"{RequestCode(request).name} ({request})"
    except ValueError:
        return f"request code {request}"
