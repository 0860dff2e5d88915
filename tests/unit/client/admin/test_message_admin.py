"""Reading of queues by administrators: from offset to offset, over damage, and at a busy broker."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.message_admin import Gap, ReadableQueue
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientError, SystemBusyError
from rocketbroker.client.core.pull_result import PullResult, PullStatus
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.scripted_server import ScriptedServer, name_server, route_of
from tests.support.stored_message import stored

QUEUE = ReadableQueue(MessageQueue("T", "broker-a", 1), "127.0.0.1:1")


class ScriptedAdmin(AdminClient):
    """Answers pulls from a list, and notes their offsets and sizes."""

    def __init__(self, *answers: PullResult | Exception) -> None:
        super().__init__("127.0.0.1:1")
        self._answers = list(answers)
        self.pulls: list[tuple[int, int]] = []

    async def pull_messages(self, queue: ReadableQueue, offset: int, max_nums: int = 32, **_: object) -> PullResult:
        assert queue is QUEUE
        self.pulls.append((offset, max_nums))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def found(*offsets: int, following: int, damage: str = "") -> PullResult:
    messages = [stored(queue_offset=offset) for offset in offsets]
    return PullResult(PullStatus.FOUND, following, 0, 100, messages, damage=damage)


async def read(admin: ScriptedAdmin, begin: int, end: int) -> list[int]:
    return [each.queue_offset async for result in admin.read_messages(QUEUE, begin, end) for each in result.messages]


async def test_a_queue_is_read_to_its_end_and_not_beyond():
    admin = ScriptedAdmin(found(3, 4, following=5), found(5, 6, 7, following=8))
    assert await read(admin, 3, 7) == [3, 4, 5, 6]
    assert admin.pulls == [(3, 4), (5, 2)]


async def test_a_damaged_message_is_passed():
    admin = ScriptedAdmin(found(3, following=4, damage="CRC"), found(following=4, damage="CRC"), found(5, following=6))
    results = [(result.damage, result.next_begin_offset) async for result in admin.read_messages(QUEUE, 3, 6)]
    assert results == [("CRC", 4), ("CRC", 5), ("", 6)]


async def test_a_queue_without_more_messages_ends():
    nothing = PullResult(PullStatus.NO_NEW_MSG, 4, 0, 4, [])
    assert await read(ScriptedAdmin(nothing), 4, 9) == []
    stuck = PullResult(PullStatus.NO_MATCHED_MSG, 4, 0, 9, [])
    assert await read(ScriptedAdmin(stuck), 4, 9) == []


async def test_a_busy_broker_is_asked_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rocketbroker.client.admin.message_admin._BUSY_PAUSE_S", 0)
    busy = SystemBusyError(int(ResponseCode.SYSTEM_BUSY), "busy")
    assert await read(ScriptedAdmin(busy, busy, found(0, following=1)), 0, 1) == [0]
    with pytest.raises(SystemBusyError):
        await read(ScriptedAdmin(*[busy] * 6), 0, 1)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedServer]:
    nothing = response(ResponseCode.PULL_NOT_FOUND)
    nothing.header = {"suggestWhichBrokerId": "0", "nextBeginOffset": "7", "minOffset": "0", "maxOffset": "7"}
    async with ScriptedServer({RequestCode.PULL_MESSAGE: lambda _fields, _body: nothing}) as broker:
        yield broker


async def test_a_pull_commits_nothing_and_is_of_the_tools_group(broker: ScriptedServer):
    routes = {"T": route_of({"broker-a": broker.address}, queues=2), "Closed": route_of({"b": "h:1"}, perm=2)}
    async with name_server(routes) as names, AdminClient(names.address) as admin:
        queue = await admin.readable_queue("T", "broker-a", 1)
        result = await admin.pull_messages(queue, 7)
        assert result.pull_status is PullStatus.NO_NEW_MSG
        (asked,) = broker.of(RequestCode.PULL_MESSAGE)
        assert (asked.fields["consumerGroup"], asked.fields["sysFlag"]) == ("TOOLS_CONSUMER", "4")
        with pytest.raises(BrokerNotFoundError, match="there are broker-a"):
            await admin.readable_queue("T", "other", 0)
        with pytest.raises(BrokerNotFoundError, match="it has 0 to 1"):
            await admin.readable_queue("T", "broker-a", 2)
        with pytest.raises(ClientError, match="updateTopicPerm -t Closed -p 6"):
            await admin.readable_queues("Closed")


@pytest.mark.parametrize(
    ("answers", "gaps"),
    [
        ([PullResult(PullStatus.OFFSET_ILLEGAL, 5, 5, 9, []), found(5, 6, 7, following=8)], [Gap(3, 5)]),
        ([PullResult(PullStatus.OFFSET_ILLEGAL, 50, 50, 90, []), found(following=51)], [Gap(3, 8)]),
        ([found(3, following=4), PullResult(PullStatus.OFFSET_ILLEGAL, 2, 0, 2, [])], [Gap(4, 8)]),
        ([PullResult(PullStatus.NO_NEW_MSG, 3, 0, 3, [])], [Gap(3, 8)]),
        ([found(3, 4, 5, 6, 7, following=8)], []),
        ([PullResult(PullStatus.NO_MATCHED_MSG, 8, 0, 9, [])], []),
    ],
)
async def test_offsets_that_a_queue_no_longer_has_are_reported(answers: list[PullResult], gaps: list[Gap]):
    found_gaps: list[Gap] = []
    async for _ in ScriptedAdmin(*answers).read_messages(QUEUE, 3, 8, on_gap=found_gaps.append):
        pass
    assert found_gaps == gaps
