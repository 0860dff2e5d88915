"""Answers to requests whose message has to be acknowledged first.

It has to be on disk under SYNC_FLUSH and on slaves under SYNC_MASTER, and its topic on disk.
"""

from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.processor.support.put_refusal import RESPONSE_CODES
from rocketbroker.store.commitlog.put_message import STORED, Acknowledgement, Acknowledgements, PutMessageResult


def acknowledged_answer(answer: Command, outcome: Acknowledgement) -> Command:
    """Return ``answer``, or the error for an outcome that is not ok.

    FLUSH_DISK_TIMEOUT and FLUSH_SLAVE_TIMEOUT keep the fields: the message is stored nevertheless, and they are right.
    """
    if outcome.ok:
        return answer
    fields = answer.header if outcome.status in STORED else None
    return response(RESPONSE_CODES[outcome.status], outcome.reason, fields)


async def answer_when_acknowledged(
    acknowledgements: Acknowledgements, result: PutMessageResult, answer: Command
) -> Command:
    """Wait for the message, then return the result of ``acknowledged_answer``."""
    return acknowledged_answer(answer, await acknowledgements.acknowledged(result))
