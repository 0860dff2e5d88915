"""Answers to sends that have to wait: for the disk (SYNC_FLUSH), or for a topic that the send created."""

import asyncio
from functools import partial

from rocketbroker.codec.remoting.frame import LENGTH, decode_frame
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.processor.support.acknowledged_answer import acknowledged_answer
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult
from rocketbroker.store.flush.acknowledgement import Acknowledgement, Acknowledgements


class SendAnswers:
    """Delays answers to sends.

    Args:
        acknowledgements: acknowledgements of stored messages.
        targets: topics, which a send may create.
        fast_failure: count of waiting sends.
    """

    def __init__(
        self, acknowledgements: Acknowledgements, targets: TopicTargets, fast_failure: BrokerFastFailure
    ) -> None:
        self._acknowledgements = acknowledgements
        self._targets = targets
        self._fast_failure = fast_failure

    def when_safe(
        self,
        answer: bytes,
        result: PutMessageResult,
        target: TopicTarget,
        queue_id: int,
        message: MessageExtBrokerInner,
    ) -> bytes | asyncio.Future[bytes | Command]:
        """Answer once the message is on disk, and its topic if that is new; a dead letter has a topic of its own."""
        queues = [(target.config.topic_name, queue_id)]
        if target.is_retry:
            queues.append((message.topic, message.queue_id))
        waits = self._targets.waits(*queues)
        must_wait = bool(waits) or self._acknowledgements.required
        target.waits = must_wait or target.is_retry
        if not must_wait:
            return answer
        wait = self._acknowledgements.wait_for(result, waits)
        return self._fast_failure.answer_when_acknowledged(wait, partial(_acknowledged, answer))


def _acknowledged(answer: bytes, outcome: Acknowledgement) -> bytes | Command:
    if outcome.ok:
        return answer
    return acknowledged_answer(decode_frame(memoryview(answer)[LENGTH.size :]), outcome)
