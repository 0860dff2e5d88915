"""Receipt handles: acknowledgement, change of the invisible time, and renewal (DefaultReceiptHandleManager).

    receipt handle := handle of POP_CK, CommitLog offset of the message     (codec.message.pop_info)

Handles of Apache's proxy are taken as well: a client may go on at another front of the same brokers.

A consumer that leaves the invisible time to the server gets 60 s, and this front renews it while the client lives: a
scan every 5 s renews what expires within 10 s, each time for longer; ProxyConfig has these times. Each renewal makes a
new handle, of which the client knows nothing. So what a client does with a message is done with the newest handle, and
a renewal that is under way is waited for: the broker would take the older handle too, but the message would return
nevertheless.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketbroker.codec.message.pop_info import ExtraInfo, decode_extra_info, real_topic
from rocketbroker.codec.remoting.bodies.topic_config import ExponentialRetryPolicy, SubscriptionGroupConfig
from rocketbroker.codec.remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError, RemotingError, shown
from rocketbroker.common.event_log import RefusalLog
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.proxy.call_context import StatusError, header_of, succeeded
from rocketbroker.proxy.clients import ProxyClient, retry_delays
from rocketbroker.proxy.messaging_pb2 import Code
from rocketbroker.proxy.service_manager import ServiceManager

log = logging.getLogger(__name__)

# RenewStrategyPolicy.
_RENEWALS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
# A client's messages beyond this number are not renewed; the caches of SDKs hold a few thousand.
_MOST_PER_CLIENT: Final = 32_768
_AT_A_TIME: Final = 64
_STOP_S: Final = 3.0

_OFFSET: Final = re.compile(r"-?[0-9]{1,19}")


class ReceiptHandle(NamedTuple):
    """Handle of a message as clients hold it; ``commit_log_offset`` is -1 if it is unknown."""

    info: ExtraInfo
    commit_log_offset: int

    @property
    def text(self) -> str:
        """Text of the handle."""
        return f"{self.info.encode()} {self.commit_log_offset}"

    @property
    def visible_ms(self) -> int:
        """Time at which the message returns, after which the handle means nothing."""
        return self.info.pop_time + self.info.invisible_time


def decode_handle(text: str) -> ReceiptHandle:
    """Return the handle with this text.

    Raises:
        StatusError: INVALID_RECEIPT_HANDLE.
    """
    try:
        info = decode_extra_info(text)
    except CodecError as error:
        remark = f"receipt handle is invalid: {error}; use the one that came with the message"
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark) from error
    further = text.split(" ")[8:]
    if not further:
        return ReceiptHandle(info, -1)
    last = further[-1]  # Apache's proxy has a 0 before it in a handle that it changed
    if not _OFFSET.fullmatch(last):
        remark = f"receipt handle is invalid: its CommitLog offset is {shown(last)}; use the one of the message"
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark)
    return ReceiptHandle(info, int(last))


class Place(NamedTuple):
    """A message of a group: it has one handle at a time."""

    group: str
    topic: str
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def stored_topic(self) -> str:
        """Topic that stores the message: ``topic`` or a retry topic."""
        return real_topic(self.topic, self.group, self.retry)


def place_of(group: str, topic: str, handle: ReceiptHandle) -> Place:
    """Return the message that a handle is for."""
    info = handle.info
    return Place(group, topic, info.retry, info.broker_name, info.queue_id, info.queue_offset)


@dataclass(slots=True)
class _Renewed:
    """A message whose invisible time is renewed. The lock is held during a renewal."""

    client: ProxyClient
    place: Place
    handle: ReceiptHandle
    reconsume_times: int
    since_ms: int
    renewals: int = 0
    failures: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Receipts:
    """Handles that are renewed, by client.

    Args:
        brokers: the brokers.
        clock: clock by which handles expire.
        config: times of renewals.
    """

    def __init__(self, brokers: ServiceManager, clock: Clock, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._clock = clock
        self._config = config
        self._tasks = TaskOwner("Receipts")
        self._renewed: dict[ProxyClient, dict[Place, _Renewed]] = {}
        # Brokers whose renewals of an earlier scan have not ended.
        self._busy: set[str] = set()
        self._returning: set[asyncio.Task[None]] = set()
        self._beyond_limit = RefusalLog(log, "messages that are not renewed")

    async def start(self) -> None:
        """Begin to renew."""
        self._tasks.every(self._config.renew_schedule_period_millis / 1000, self.scan, "renew")

    async def stop(self) -> None:
        """Renew no more; wait a moment for messages that are being returned."""
        if self._returning:
            await asyncio.wait(self._returning, timeout=_STOP_S)
        await self._tasks.stop()

    # -- use of a handle

    @asynccontextmanager
    async def newest(self, client: ProxyClient, group: str, topic: str, text: str) -> AsyncIterator[ReceiptHandle]:
        """Yield the newest handle of a message, which is then renewed no more, unless the block fails at the broker.

        Raises:
            StatusError: INVALID_RECEIPT_HANDLE, if the text is no handle or an expired one.
        """
        handle = decode_handle(text)
        table = self._renewed.get(client, {})
        renewed = table.pop(place_of(group, topic, handle), None)
        if renewed is not None:
            async with renewed.lock:
                handle = renewed.handle
        if (late_ms := self._clock.time_ms() - handle.visible_ms) >= 0:
            remark = (
                f"receipt handle is expired: its invisible time ended {late_ms:,} ms ago, and the message returns to "
                "the group; consume faster, or ask for a longer invisible duration"
            )
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, remark)
        try:
            yield handle
        except (BrokerResponseError, RemotingError):
            if renewed is not None and not client.is_gone:
                table[renewed.place] = renewed
            raise

    async def change(
        self,
        client: ProxyClient,
        place: Place,
        handle: ReceiptHandle,
        invisible_ms: int,
        *,
        suspend: bool = False,
    ) -> ReceiptHandle:
        """Let a message return ``invisible_ms`` from now, and return its new handle.

        Raises:
            BrokerResponseError: The broker did not change it.
            RemotingError: The broker cannot be reached.
        """
        info = handle.info
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=place.group,
            topic=place.stored_topic,
            queue_id=place.queue_id,
            extra_info=handle.text,
            offset=place.queue_offset,
            invisible_time=invisible_ms,
            suspend=suspend,
            broker_name=place.broker_name,
        )
        command = request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        answer = await succeeded(self._brokers.invoke(client, place.broker_name, command))
        changed = header_of(answer, ChangeInvisibleTimeResponseHeader)
        return ReceiptHandle(
            # The message has a check point of its own now.
            info._replace(
                ck_queue_offset=place.queue_offset,
                pop_time=changed.pop_time,
                invisible_time=changed.invisible_time,
                revive_qid=changed.revive_qid,
            ),
            handle.commit_log_offset,
        )

    # -- renewal

    def renew(self, client: ProxyClient, place: Place, handle: ReceiptHandle, reconsume_times: int) -> None:
        """Renew the invisible time of a message from now on, until it is acknowledged."""
        table = self._renewed.setdefault(client, {})
        if len(table) >= _MOST_PER_CLIENT and place not in table:
            self._beyond_limit.add(
                f"client {shown(client.client_id)} holds {_MOST_PER_CLIENT:,} messages without an acknowledgement; "
                f"more are not renewed, and return after {self._config.default_invisible_time_mills / 1000:g} s"
            )
            return
        table[place] = _Renewed(client, place, handle, reconsume_times, handle.info.pop_time)

    def scan(self) -> None:
        """Renew what expires soon; a broker that is slow delays the renewals at that broker alone."""
        soon = self._clock.time_ms() + self._config.renew_ahead_time_millis
        due: dict[str, list[_Renewed]] = {}
        for table in self._renewed.values():
            for renewed in table.values():
                if renewed.handle.visible_ms <= soon:
                    due.setdefault(renewed.place.broker_name, []).append(renewed)
        for broker_name, at_broker in due.items():
            if broker_name not in self._busy:
                self._busy.add(broker_name)
                self._tasks.start(self._renew_all(broker_name, at_broker), f"renew at {broker_name}")

    async def _renew_all(self, broker_name: str, due: list[_Renewed]) -> None:
        try:
            for start in range(0, len(due), _AT_A_TIME):
                await asyncio.gather(*map(self._renew, due[start : start + _AT_A_TIME]))
        finally:
            self._busy.discard(broker_name)

    async def _renew(self, renewed: _Renewed) -> None:
        client, place = renewed.client, renewed.place
        async with renewed.lock:
            table = self._renewed.get(client, {})
            if table.get(place) is not renewed:
                return
            is_last = self._clock.time_ms() - renewed.since_ms >= self._config.renew_max_time_millis
            try:
                if is_last:
                    held_s = (self._clock.time_ms() - renewed.since_ms) / 1000
                    log.warning(
                        "message %s of client %s is renewed no more after %g s (renewMaxTimeMillis); it returns to its "
                        "group",
                        place,
                        shown(client.client_id),
                        held_s,
                    )
                    group = await self._brokers.subscription_group_config(place.group)
                    invisible_ms = _retry_delay_ms(group, renewed.reconsume_times)
                else:
                    invisible_ms = _RENEWALS_MS[min(renewed.renewals, len(_RENEWALS_MS) - 1)]
                renewed.handle = await self.change(client, place, renewed.handle, invisible_ms)
            except (BrokerResponseError, RemotingError) as error:
                renewed.failures += 1
                log.warning("message %s of client %s is not renewed: %s", place, shown(client.client_id), error)
                is_last = is_last or renewed.failures >= self._config.max_renew_retry_times
            else:
                renewed.failures = 0
                renewed.renewals += 1
            if is_last and table.get(place) is renewed:
                del table[place]

    # -- messages that nobody will acknowledge

    def release(self, client: ProxyClient) -> None:
        """Return the messages of a client that is gone to their groups, then let the brokers forget it."""
        table = self._renewed.pop(client, {})
        self._in_background(self._release(client, table.values()))

    async def _release(self, client: ProxyClient, table: Iterable[_Renewed]) -> None:
        try:
            for renewed in table:
                async with renewed.lock:
                    invisible_ms = self._config.invisible_time_millis_when_clear
                    await self._return(client, renewed.place, renewed.handle, invisible_ms)
        finally:
            self._brokers.closed(client)

    def give_back(self, client: ProxyClient, messages: Iterable[tuple[Place, ReceiptHandle]]) -> None:
        """Return messages to their group at once that their client did not get."""
        table = self._renewed.get(client, {})
        given = list(messages)
        for place, _ in given:
            table.pop(place, None)
        self._in_background(self._give_back(client, given))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.start(work, "return")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _give_back(self, client: ProxyClient, messages: Iterable[tuple[Place, ReceiptHandle]]) -> None:
        try:
            for place, handle in messages:
                await self._return(client, place, handle, 0)
        finally:
            if client.is_gone:  # the brokers may have met it again here
                self._brokers.closed(client)

    async def _return(self, client: ProxyClient, place: Place, handle: ReceiptHandle, invisible_ms: int) -> None:
        try:
            await self.change(client, place, handle, invisible_ms)
        except (BrokerResponseError, RemotingError) as error:
            log.warning("message %s returns no sooner than its invisible time ends: %s", place, error)


def _retry_delay_ms(group: SubscriptionGroupConfig, reconsume_times: int) -> int:
    """Return the time to the next delivery of a message that failed (RetryPolicy.nextDelayDuration)."""
    delays, times = retry_delays(group), max(reconsume_times, 0)
    if isinstance(delays, ExponentialRetryPolicy):
        return int(min(delays.max, delays.initial * delays.multiplier ** min(times, 32)))
    # The first two are for the retries of ordered messages.
    return delays[min(times + 2, len(delays) - 1)]
