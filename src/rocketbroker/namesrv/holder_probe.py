"""Liveness check of a broker whose place another one claims.

A host that lost power or its network closes no connection. Its brokers would hold their places for 120 s, while the
brokers that replace them are rejected.
"""

import asyncio
import logging

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError, shown
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 3.0


class HolderProbe:
    """Ping brokers over the connections they registered by; close the connection of a broker that does not answer.

    Brokers answer every request, if only with REQUEST_CODE_NOT_SUPPORTED.

    Args:
        tasks: owner of the pings, one at a time for a connection.
        timeout_s: limit for the answer.
    """

    def __init__(self, tasks: TaskOwner, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._asked: dict[Connection, asyncio.Task[None]] = {}

    def ask(self, broker_addr: str, connection: Connection) -> None:
        """Ping a broker unless a ping is running."""
        if connection not in self._asked:
            self._asked[connection] = self._tasks.start(self._ask(broker_addr, connection), "holderProbe")

    async def _ask(self, broker_addr: str, connection: Connection) -> None:
        try:
            await connection.invoke(request(RequestCode.HEART_BEAT), self._timeout_s)
        except RemotingTimeoutError:
            what = f"the broker at {shown(broker_addr)} did not answer within {self._timeout_s:g} s"
            text = f"{what}, and another broker claims its place"
            log.warning("%s", text)
            connection.close(text)
        except RemotingSendError as error:
            log.info("the broker at %s could not be checked for liveness: %s", shown(broker_addr), shown(str(error)))
        finally:
            del self._asked[connection]
