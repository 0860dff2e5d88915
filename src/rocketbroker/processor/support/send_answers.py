"""Answers to sends that wait: for the disk (SYNC_FLUSH), for slaves (SYNC_MASTER), for a topic that they create."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.remoting.frame import decode_frames
from rocketbroker.codec.remoting.handler import RunAnswers
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.put_answers import acknowledged_answer, put_refusal
from rocketbroker.processor.support.topic_target import TopicTarget, TopicTargets
from rocketbroker.store.commitlog.put_message import (
    Acknowledgement,
    Acknowledgements,
    MessageExtBrokerInner,
    PutMessageResult,
)

# In the properties of a message that waits for no slave.
_NO_SLAVE: Final = b"WAIT\x01false"


class SendAnswers:
    """Delays answers to sends.

    Args:
        acknowledgements: acknowledgements of stored messages.
        targets: topics, which a send may create.
        fast_failure: count of waiting sends.

    Attributes:
        must_wait: each answer waits, for the disk or for slaves.
    """

    def __init__(
        self, acknowledgements: Acknowledgements, targets: TopicTargets, fast_failure: BrokerFastFailure
    ) -> None:
        self._acknowledgements = acknowledgements
        self.must_wait = acknowledgements.required
        self._targets = targets
        self._fast_failure = fast_failure

    def check_replicas(self, message: MessageExtBrokerInner, target: TopicTarget) -> None:
        """Reject a message that would wait for more slaves than are in sync, if this broker rejects such messages.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, as RocketMQ answers IN_SYNC_REPLICAS_NOT_ENOUGH.
        """
        shortage = self._acknowledgements.shortage
        if shortage is None or not self._waits_for_slaves(message):
            return
        if (refused := shortage()) is not None:
            target.stats.misses += 1
            raise put_refusal(refused)

    def _waits_for_slaves(self, message: MessageExtBrokerInner) -> bool:
        """Return true unless a message has WAIT=false, or no message waits (CommitLog.needHandleHA)."""
        return self._acknowledgements.on_slaves and get_property(message.properties, b"WAIT") != b"false"

    def when_safe(
        self,
        answer: bytes,
        result: PutMessageResult,
        target: TopicTarget,
        queue_id: int,
        message: MessageExtBrokerInner,
    ) -> bytes | asyncio.Future[bytes | Command]:
        """Answer once message and topic are on disk, and slaves have it; a dead letter has a topic of its own."""
        queues = [(target.config.topic_name, queue_id)]
        if target.is_retry:
            queues.append((message.topic, message.queue_id))
        on_slaves = self._waits_for_slaves(message)
        waits = self._targets.waits(*queues)
        must_wait = bool(waits) or self._acknowledgements.required
        target.waits = must_wait or target.is_retry
        if not must_wait:
            return answer
        wait = self._acknowledgements.wait_for(result, waits, on_slaves=on_slaves)
        return self._fast_failure.answer_when_acknowledged(wait, partial(_acknowledged, answer))

    def takes_run(self, target: TopicTarget, properties: Sequence[bytes]) -> bool:
        """Return true if sends with these properties may wait together: there is room, and all wait for the same.

        Where slaves are missing that they need, each is rejected by itself.

        Of a topic that is being changed, some queues may be on disk and others not.
        """
        if not self._fast_failure.has_room(len(properties)) or self._targets.waits((target.config.topic_name, 0)):
            return False
        shortage = self._acknowledgements.shortage
        if shortage is not None and shortage() is not None:
            return False
        return not (self._acknowledgements.on_slaves and any(_NO_SLAVE in each for each in properties))

    def run_when_safe(
        self, answers: bytes, result: PutMessageResult, target: TopicTarget
    ) -> bytes | asyncio.Future[RunAnswers]:
        """Answer the sends of a run together, once all their messages are on disk, and slaves have them."""
        target.waits = self._acknowledgements.required
        if not target.waits:
            return answers
        wait = self._acknowledgements.wait_for(result, on_slaves=self._acknowledgements.on_slaves)
        return self._fast_failure.answer_when_acknowledged(wait, partial(_all_acknowledged, answers), result.sends)


def _acknowledged(answer: bytes, outcome: Acknowledgement) -> bytes | Command:
    return answer if outcome.ok else _answers_for(answer, outcome)[0]


def _all_acknowledged(answers: bytes, outcome: Acknowledgement) -> RunAnswers:
    return answers if outcome.ok else _answers_for(answers, outcome)


def _answers_for(answers: bytes, outcome: Acknowledgement) -> list[Command]:
    return [acknowledged_answer(answer, outcome) for answer in decode_frames(answers)]
