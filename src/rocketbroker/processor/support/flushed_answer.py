"""What is answered when a message has to be on disk first (SYNC_FLUSH)."""

from typing import Protocol

from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.store.commitlog.put_message import PutMessageResult


class FlushedStore(Protocol):
    """What is needed of the message store."""

    @property
    def waits_for_flush(self) -> bool:
        """Whether a message is acknowledged only when it is on disk (SYNC_FLUSH)."""

    async def wait_flushed(self, result: PutMessageResult) -> str:
        """Wait until a message is on disk; gives why it is not, empty when it is."""


def flushed_answer(answer: Command, why: str) -> Command:
    """``answer``, or FLUSH_DISK_TIMEOUT with its fields when there is a reason why the message is not on disk.

    The message is stored all the same, so that what is said of it holds.
    """
    return response(ResponseCode.FLUSH_DISK_TIMEOUT, why, answer.header) if why else answer


async def answer_when_flushed(store: FlushedStore, result: PutMessageResult, answer: Command) -> Command:
    """As ``flushed_answer``, once the message is on disk or the disk refused or took too long."""
    return flushed_answer(answer, await store.wait_flushed(result))
