"""Commands of the gRPC port to one client, by the telemetry call that the client keeps open."""

import asyncio
import logging
from collections import deque
from typing import Final

from grpc import aio

from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.call_context import CallContext
from rocketbroker.proxy.messaging_pb2 import TelemetryCommand

log = logging.getLogger(__name__)

#: Bytes of commands that a client may leave unread.
MAX_UNSENT: Final = 1024 * 1024


class TelemetryCall:
    """Way of commands to a client, for as long as its telemetry call is open.

    Commands wait here while the client does not read them. One that leaves too many unread loses its stream.

    Attributes:
        settings: the last command with settings, whose rights the stream needs.
    """

    __slots__ = (
        "_handler",
        "_tasks",
        "_unsent",
        "_unsent_bytes",
        "_writer",
        "call",
        "context",
        "is_lost",
        "is_open",
        "is_overfull",
        "is_refused",
        "settings",
    )

    def __init__(self, call: aio.ServicerContext[bytes, bytes], tasks: TaskOwner, context: CallContext) -> None:
        self.call, self._tasks, self.context = call, tasks, context
        self._handler = asyncio.current_task()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self.is_open, self.is_overfull, self.is_lost, self.is_refused = True, False, False, False
        self.settings = TelemetryCommand()

    def send(self, command: TelemetryCommand) -> None:
        """Send a command to the client, if the stream is open."""
        if not self.is_open:
            return
        data = command.SerializeToString()
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > MAX_UNSENT and len(self._unsent) > 1:
            log.warning(
                "%s at %s does not read its commands; ending its stream", self.context.client_id, self.context.peer
            )
            self.is_open, self.is_overfull = False, True
            self._unsent.clear()
            if self._handler is not None:
                self._handler.cancel()
        elif self._writer is None:
            self._writer = self._tasks.start(self._write(), "telemetry")

    def end(self, command: TelemetryCommand) -> None:
        """Send a last command, and end the stream."""
        self.send(command)
        self.is_open, self.is_refused = False, True
        if self._handler is not None:
            self._handler.cancel()

    async def _write(self) -> None:
        try:
            while self._unsent:
                data = self._unsent.popleft()
                await self.call.write(data)
                self._unsent_bytes -= len(data)
        except aio.BaseError as error:
            log.debug("client %s at %s: its stream ended: %s", self.context.client_id, self.context.peer, error)
            self.is_lost = True
            self._unsent.clear()
        finally:
            self._writer = None

    async def sent(self) -> None:
        """Wait until the client has taken all commands."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
