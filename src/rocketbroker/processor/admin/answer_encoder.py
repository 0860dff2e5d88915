"""Encoding of long answers off the event loop, with a limit on their length."""

import asyncio
from concurrent.futures import Executor

from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError

# Entries that are encoded in a few milliseconds.
_FEW = 500


class AnswerEncoder:
    """Encodes bodies that may be long.

    Args:
        config: ``maxEntriesPerAnswer``.
        executor: thread that encodes one answer at a time, so that the loop competes with one thread only.
    """

    def __init__(self, config: BrokerConfig, executor: Executor) -> None:
        self._config = config
        self._executor = executor

    def check(self, entries: int) -> None:
        """Check the number of entries (queues, clients, offsets) before they are collected.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many for one answer.
        """
        limit = self._config.max_entries_per_answer
        if entries > limit:
            remark = (
                f"maxEntriesPerAnswer: {entries:,} entries exceed the limit of {limit:,}; ask for fewer topics or "
                "groups at a time or raise maxEntriesPerAnswer"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)

    async def encode(self, body: RemotingSerializable, entries: int) -> bytes:
        """Encode a body of ``entries`` entries; nothing may change it meanwhile."""
        if entries <= _FEW:
            return body.encode()
        return await asyncio.get_running_loop().run_in_executor(self._executor, body.encode)
