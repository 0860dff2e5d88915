"""Receipt handles: renewal while a client lives, and the return of messages once it is gone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from google.protobuf.duration_pb2 import Duration

from rocketbroker.codec.message.pop_info import ExtraInfo
from rocketbroker.codec.remoting.bodies.topic_config import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
)
from rocketbroker.codec.remoting.headers.pop import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingConnectError
from rocketbroker.proxy import receipts as receipts_module
from rocketbroker.proxy.call_context import CallContext, StatusError
from rocketbroker.proxy.clients import ProxyClient
from rocketbroker.proxy.messaging_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    Code,
    Message,
    MessageQueue,
    NotifyClientTerminationRequest,
    ReceiveMessageRequest,
    Resource,
    SendMessageRequest,
)
from rocketbroker.proxy.messaging_service import MessagingService
from rocketbroker.proxy.receipts import Place, ReceiptHandle, Receipts, decode_handle, place_of
from rocketbroker.proxy.transactions import OpenTransactions
from rocketbroker.testing.clocks import ControlledClock
from tests.support.fakes import FakeClock
from tests.support.local_broker import ControlledBroker, served_broker
from tests.support.proxy_brokers import FakeBrokers
from tests.support.proxy_calls import CONTEXT, Stream, consumer, message
from tests.support.running import stopping
from tests.support.waiting import turns, until

ORDERS, BILLING = Resource(name="Orders"), Resource(name="billing")
OTHER = CallContext("client-2", "JAVA", "5.1.0", "", "127.0.0.1:5001", None)
numbers = st.integers(0, 2**63 - 1)


# -- texts


@given(
    st.tuples(numbers, numbers, numbers, st.integers(0, 2**31 - 1), st.sampled_from("012")),
    st.text("abc-_", min_size=1),
    st.tuples(st.integers(0, 2**31 - 1), numbers),
    numbers,
)
def test_a_handle_comes_back_from_its_text(
    first: tuple[int, int, int, int, str], broker_name: str, last: tuple[int, int], commit_log_offset: int
):
    handle = ReceiptHandle(ExtraInfo(*first, broker_name, *last), commit_log_offset)

    assert decode_handle(handle.text) == handle
    changed_by_apache = f"{handle.info.encode()} 0 {handle.commit_log_offset}"
    assert decode_handle(changed_by_apache) == handle


@given(st.text())
def test_any_text_is_a_handle_or_refused(text: str):
    try:
        decode_handle(text)
    except StatusError as error:
        assert error.code == Code.INVALID_RECEIPT_HANDLE  # noqa: PT017 - most texts are refused


# -- renewal, at a broker


class Served:
    """A broker with one message, received by a client that leaves the invisible time to the server."""

    def __init__(self, broker: ControlledBroker, service: MessagingService, clock: ControlledClock) -> None:
        self.broker = broker
        self.service = service
        self.clock = clock
        self.receipts = service._receipts

    async def receive(self, context: CallContext = CONTEXT) -> list[Message]:
        request = ReceiveMessageRequest(
            group=BILLING,
            message_queue=MessageQueue(topic=ORDERS),
            batch_size=32,
            auto_renew=True,
            long_polling_timeout=Duration(seconds=5),
        )
        parts = await self.service.receive_message(request, context)
        return [each.message for each in parts if each.HasField("message")]

    async def received(self, context: CallContext = CONTEXT) -> Message:
        """Return the message once it is visible."""
        async with asyncio.timeout(60):
            while not (found := await self.receive(context)):
                pass
        return found[0]

    async def renew(self, after_s: float) -> None:
        """Scan so much later, and wait for the renewals."""
        self.clock.advance(after_s)
        self.receipts.scan()
        await until(lambda: not self.receipts._busy)

    async def ack(self, received: Message) -> Code:
        entry = AckMessageEntry(receipt_handle=received.system_properties.receipt_handle)
        request = AckMessageRequest(group=BILLING, topic=ORDERS, entries=[entry])
        reply = await self.service.ack_message(request, CONTEXT)
        return reply.status.code

    def hidden_until_s(self) -> list[int]:
        """Return the seconds until the messages in flight return, as the broker counts them."""
        queues = self.broker.controller._check_points.queues
        queue = queues.get("Orders", "billing", 0)
        now = self.clock.time_ms()
        return [round((each.pop_time + each.invisible_time - now) / 1000) for each in queue.open.values()]

    @property
    def open(self) -> int:
        """Messages in flight."""
        return self.broker.controller._check_points.count


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    clock = ControlledClock()
    async with served_broker(tmp_path, clock) as (broker, service):
        broker.add_topic("Orders", queues=1)
        broker.add_group("billing")
        await service.telemetry(consumer("billing"), CONTEXT, Stream())
        await service.send_message(SendMessageRequest(messages=[message(b"1")]), CONTEXT)
        await turns(1)
        yield Served(broker, service, clock)


async def test_a_message_does_not_return_while_its_client_lives(served: Served):
    received = await served.received()
    for after_s in (51, 51, 171):
        await served.renew(after_s)
    served.clock.advance(200)

    assert served.hidden_until_s() == [100]
    # By the handle of the receive, which expired long ago.
    assert await served.ack(received) == Code.OK
    assert served.open == 0


async def test_an_acknowledged_message_is_renewed_no_more(served: Served):
    received = await served.received()
    await served.ack(received)
    await served.renew(51)

    assert served.receipts._renewed == {served.service._clients.of(CONTEXT): {}}
    assert served.open == 0


async def test_messages_of_a_client_that_ends_return_in_a_second(served: Served):
    received = await served.received()
    await served.service.notify_client_termination(NotifyClientTerminationRequest(), CONTEXT)
    await until(lambda: not served.receipts._returning)
    served.clock.advance(1.5)
    again = await served.received(OTHER)

    assert again.system_properties.message_id == received.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2


async def test_messages_of_a_silent_client_return(served: Served):
    await served.received()
    served.service.telemetry_closed(CONTEXT, served.service._clients.of(CONTEXT).stream)  # type: ignore[arg-type]
    served.service.forget_silent(asyncio.get_running_loop().time() + 1)
    await until(lambda: not served.receipts._returning)
    served.clock.advance(1.5)

    assert (await served.received(OTHER)).body == b"1"


async def test_a_client_that_never_sent_settings_is_served(served: Served):
    received = await served.received(OTHER)
    await served.renew(51)
    served.clock.advance(40)

    assert await served.ack(received) == Code.INVALID_RECEIPT_HANDLE, "it is not this client's"
    assert served.hidden_until_s() == [20]


async def test_a_client_that_goes_while_it_receives_leaves_its_messages(served: Served):
    await served.ack(await served.received())
    waiting = asyncio.create_task(served.receive())
    await until(lambda: served.broker.controller.polling.polling_num("Orders", "billing", -1))
    client = served.service._clients.of(CONTEXT)
    client.is_gone = True
    await served.service.send_message(SendMessageRequest(messages=[message(b"2")]), OTHER)

    assert await waiting == []
    client.is_gone = False
    served.clock.advance(1.5)
    assert (await served.received()).body == b"2"


async def test_a_stop_returns_all_messages(tmp_path: Path):
    clock = ControlledClock()
    async with served_broker(tmp_path, clock) as (broker, service):
        broker.add_topic("Orders", queues=1)
        broker.add_group("billing")
        await service.send_message(SendMessageRequest(messages=[message(b"1")]), CONTEXT)
        await turns(1)
        served = Served(broker, service, clock)
        await served.received()
        await service.stop()
        clock.advance(1.5)

        assert (await served.received(OTHER)).body == b"1"


# -- renewal, with brokers that answer anything


class Renewal:
    """Messages of a client at brokers that take what is asked of them."""

    def __init__(self, brokers: FakeBrokers, **settings: int) -> None:
        self.brokers = brokers
        self.clock = FakeClock()
        self.receipts = Receipts(brokers, self.clock, ProxyConfig.model_validate(settings))
        self.client = ProxyClient(CONTEXT, OpenTransactions())
        brokers.answer = self.changed(60_000)

    def changed(self, invisible_ms: int) -> Command:
        return response(header=ChangeInvisibleTimeResponseHeader(self.clock.time_ms(), invisible_ms, 1))

    def add(self, offset: int = 0, broker_name: str = "broker-a", reconsume_times: int = 0) -> ReceiptHandle:
        info = ExtraInfo(0, self.clock.time_ms(), 60_000, 1, "0", broker_name, 0, offset)
        handle = ReceiptHandle(info, 77)
        self.receipts.renew(self.client, place_of("billing", "Orders", handle), handle, reconsume_times)
        return handle

    @property
    def places(self) -> list[Place]:
        return list(self.receipts._renewed.get(self.client, {}))

    @property
    def asked(self) -> list[int]:
        """Invisible times that were asked for."""
        headers = [each.header for each in self.brokers.sent(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)]
        assert all(isinstance(each, ChangeInvisibleTimeRequestHeader) for each in headers)
        return [each.invisible_time for each in headers]

    async def scan(self, after_s: float = 0) -> None:
        self.clock.advance(after_s)
        self.receipts.scan()
        await until(lambda: not self.receipts._busy)

    async def acknowledged(self, handle: ReceiptHandle) -> ReceiptHandle:
        async with self.receipts.newest(self.client, "billing", "Orders", handle.text) as newest:
            return newest


@pytest.fixture
async def renewal() -> AsyncIterator[Renewal]:
    brokers = FakeBrokers()
    brokers.add_group("billing")
    renewal = Renewal(brokers)
    async with stopping(renewal.receipts):
        yield renewal


async def test_a_message_is_renewed_ten_seconds_ahead(renewal: Renewal):
    renewal.add()
    await renewal.scan(49)
    assert renewal.asked == []
    await renewal.scan(1)
    assert renewal.asked == [60_000]


MINUTE = 60_000


async def test_renewals_are_longer_each_time_and_end_after_three_hours(renewal: Renewal):
    renewal.add(reconsume_times=1)
    expected = [MINUTE, 3 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE, 60 * MINUTE, 60 * MINUTE]
    left_s = 60.0
    for invisible_ms in expected:
        renewal.clock.advance(left_s - 5)
        renewal.brokers.answer = renewal.changed(invisible_ms)
        await renewal.scan()
        left_s = invisible_ms / 1000
    renewal.clock.advance(left_s - 5)
    await renewal.scan()

    # At last, the delay before the third delivery.
    assert renewal.asked == [*expected, 30_000]
    assert renewal.places == []


async def test_the_last_delay_is_that_of_the_group(renewal: Renewal):
    growing = ExponentialRetryPolicy(initial=1000, max=3000, multiplier=2)
    policy = GroupRetryPolicy(GroupRetryPolicyType.EXPONENTIAL, exponential_retry_policy=growing)
    renewal.brokers.add_group("billing", group_retry_policy=policy)
    for times in range(3):
        renewal.add(times, reconsume_times=times)
    await renewal.scan(4 * 3600)

    assert renewal.asked == [1000, 2000, 3000]


async def test_a_policy_without_delays_has_those_of_rocketmq(renewal: Renewal):
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([]))
    renewal.brokers.add_group("billing", group_retry_policy=policy)
    renewal.add(reconsume_times=1)
    await renewal.scan(4 * 3600)

    assert renewal.asked == [30_000]


async def test_times_of_renewals_are_settings():
    brokers = FakeBrokers()
    brokers.add_group("billing")
    renewal = Renewal(
        brokers, renew_ahead_time_millis=30_000, renew_max_time_millis=60_000, invisible_time_millis_when_clear=7
    )
    async with stopping(renewal.receipts):
        renewal.add()
        await renewal.scan(29)
        assert renewal.asked == []
        await renewal.scan(2)
        await renewal.scan(60)
        renewal.add()
        renewal.receipts.release(renewal.client)
        await until(lambda: brokers.gone)

    assert renewal.asked == [60_000, 10_000, 7]


async def test_a_message_that_cannot_be_renewed_is_left(renewal: Renewal, caplog: pytest.LogCaptureFixture):
    renewal.add()
    renewal.brokers.answer = response(ResponseCode.SYSTEM_BUSY, "wait")
    for _ in range(4):
        await renewal.scan(55)

    assert len(renewal.asked) == 3
    assert renewal.places == []
    assert sum("is not renewed: CODE: 2  DESC: wait" in each for each in caplog.messages) == 3


async def test_a_slow_broker_delays_its_own_renewals_alone(renewal: Renewal):
    held = renewal.brokers.held = asyncio.get_running_loop().create_future()
    renewal.add(broker_name="broker-slow")
    renewal.add(broker_name="broker-fast")
    renewal.clock.advance(55)
    renewal.brokers.answer = renewal.changed(60_000)
    for _ in range(2):
        renewal.receipts.scan()
        await turns()

    names = [name for _, name, _ in renewal.brokers.requests]
    assert names == ["broker-slow", "broker-fast"]
    held.set_result(renewal.changed(60_000))
    await until(lambda: not renewal.receipts._busy)


async def test_an_acknowledgement_waits_for_a_renewal_under_way(renewal: Renewal):
    first = renewal.add()
    held = renewal.brokers.held = asyncio.get_running_loop().create_future()
    renewal.clock.advance(55)
    renewal.receipts.scan()
    await turns()
    acknowledged = asyncio.create_task(renewal.acknowledged(first))
    await turns()
    assert not acknowledged.done()
    held.set_result(renewal.changed(90_000))
    newest = await acknowledged

    assert (newest.info.invisible_time, newest.commit_log_offset) == (90_000, 77)
    assert renewal.places == []


async def test_a_message_whose_acknowledgement_failed_is_renewed_further(renewal: Renewal):
    handle = renewal.add()
    with pytest.raises(BrokerResponseError):
        async with renewal.receipts.newest(renewal.client, "billing", "Orders", handle.text):
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, "wait")

    assert renewal.places == [place_of("billing", "Orders", handle)]


async def test_a_client_has_a_limit(
    renewal: Renewal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(receipts_module, "_MOST_PER_CLIENT", 2)
    for offset in range(3):
        renewal.add(offset)
    renewal.add(1)

    assert [place.queue_offset for place in renewal.places] == [0, 1]
    assert sum("more are not renewed" in each for each in caplog.messages) == 1


async def test_a_broker_that_is_gone_does_not_keep_a_client(renewal: Renewal, caplog: pytest.LogCaptureFixture):
    renewal.add()
    renewal.brokers.answers[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = RemotingConnectError("refused")
    renewal.receipts.release(renewal.client)
    await until(lambda: renewal.brokers.gone)

    assert renewal.brokers.gone == [renewal.client]
    assert any("returns no sooner than its invisible time ends: refused" in each for each in caplog.messages)
