"""Assignments and modes; QUERY_ASSIGNMENT (400) and SET_MESSAGE_REQUEST_MODE (401)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.query_assignment import QueryAssignmentProcessor, _allocated, _Group
from tests.support.processor_calls import Answered, call, call_async, family, refusal

# As the Java client 5.5.0 sends it.
QUERY = b'{"clientId":"%b","consumerGroup":"G","messageModel":"%b","strategyName":"%b","topic":"%b"}'


class Routes:
    """Topic T with queues on two brokers."""

    def __init__(self) -> None:
        self.queues = [MessageQueue("T", name, number) for name in ("b", "a") for number in range(2)]

    async def subscribe_queues(self, topic: str) -> list[MessageQueue] | None:
        return self.queues if topic == "T" else None


@pytest.fixture
def routes() -> Routes:
    return Routes()


@pytest.fixture
def modes(parts: SimpleNamespace, tmp_path) -> MessageRequestModeManager:
    return MessageRequestModeManager(tmp_path / "messageRequestMode.json", parts.config)


@pytest.fixture
def processor(parts, routes, modes, encoder) -> QueryAssignmentProcessor:
    parts.topics.update(TopicConfig("T", 4, 4))
    return family(QueryAssignmentProcessor, parts, routes=routes, modes=modes, encoder=encoder)


@pytest.fixture
def members(parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    """Sets the clients of group G."""

    def members_are(*client_ids: str) -> None:
        info = SimpleNamespace(client_ids=lambda: list(client_ids))
        monkeypatch.setattr(parts.consumers, "group_info", lambda group: info if group == "G" else None)

    return members_are


async def ask(
    processor: QueryAssignmentProcessor, client_id: str, *, strategy: str = "AVG", topic: str = "T", model: str = ""
) -> Answered:
    values = (client_id, model or "CLUSTERING", strategy, topic)
    return await call_async(processor.query_assignment, body=QUERY % tuple(value.encode() for value in values))


def assigned(answer: Answered) -> list[str]:
    """Return mode and queue of each assignment."""
    assert answer.code == ResponseCode.SUCCESS
    entries: list[dict[str, Any]] = answer.body["messageQueueAssignments"]
    queues = [(entry["mode"], entry["messageQueue"]) for entry in entries]
    assert {queue["topic"] for _, queue in queues} <= {"T"}
    return [f"{mode} {queue['brokerName']}{queue['queueId']}" for mode, queue in queues]


async def test_members_of_a_pulling_group_divide_the_queues(processor, members):
    members("c2", "c1")

    assert assigned(await ask(processor, "c1")) == ["PULL a0", "PULL a1"]
    assert assigned(await ask(processor, "c2")) == ["PULL b0", "PULL b1"]
    assert assigned(await ask(processor, "c2", strategy="AVG_BY_CIRCLE")) == ["PULL a1", "PULL b1"]


async def test_broadcasting_and_no_balancing_give_all_queues(parts, processor):
    everything = ["PULL b0", "PULL b1", "PULL a0", "PULL a1"]
    config = parts.config.model_copy(update={"server_load_balancer_enable": False})

    assert assigned(await ask(processor, "c1", model="BROADCASTING")) == everything
    assert assigned(await ask(replace(processor, config=config), "c1")) == everything


async def test_a_client_without_heartbeat_gets_nothing(processor, members):
    members("c1")

    assert assigned(await ask(processor, "stranger")) == []


async def test_pop_without_sharing_gives_each_client_all_queues_of_each_broker(processor, modes, members):
    modes.update("T", "G", SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP))
    members("c1", "c2", "c3")

    for client_id in ("c1", "c2", "c3", "stranger"):
        assert assigned(await ask(processor, client_id)) == ["POP a-1", "POP b-1"]


async def test_pop_with_sharing_gives_the_queues_of_the_next_clients_too(processor, modes, members):
    modes.update("T", "G", SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 1))
    members("c1", "c2", "c3", "c4")

    assert assigned(await ask(processor, "c1")) == ["POP a0", "POP a1"]
    assert assigned(await ask(processor, "c4")) == ["POP b1", "POP a0"]
    assert assigned(await ask(processor, "stranger")) == []


async def test_pop_with_more_clients_than_queues_gives_each_one(processor, modes, members):
    modes.update("T", "G", SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 1))
    members("c1", "c2", "c3", "c4", "c5")

    assert assigned(await ask(processor, "c2")) == ["POP a1"]
    assert assigned(await ask(processor, "c5")) == ["POP a0"]


@given(st.integers(1, 12), st.integers(1, 8), st.integers(-2, 9))
def test_pop_leaves_no_queue_without_a_client(queues: int, members: int, share: int):
    every = [MessageQueue("T", "a", number) for number in range(queues)]
    group = _Group(every, [f"c{number}" for number in range(members)], "AVG")
    mode = SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, share)

    taken = [_allocated(client_id, group, mode) for client_id in group.client_ids]

    assert all(taken)
    assert all(len(set(shares)) == len(shares) for shares in taken)
    found = {queue.queue_id for shares in taken for queue in shares}
    assert found == {-1} or found == set(range(queues))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"topic": "Unknown"}, "the name servers know no queue of topic Unknown that can be read"),
        ({"strategy": "CONFIG"}, "unsupported strategy 'CONFIG'; use AVG or AVG_BY_CIRCLE"),
    ],
)
async def test_a_client_keeps_its_queues_with_a_reason(processor, members, query: dict[str, str], reason: str):
    members("c1")

    answer = await ask(processor, "c1", **query)

    assert answer == Answered(ResponseCode.SUCCESS, reason, {}, {})


async def test_a_client_of_a_group_without_clients_keeps_its_queues(processor):
    answer = await ask(processor, "c1")

    assert answer == Answered(ResponseCode.SUCCESS, "group G has no client; send a heartbeat first", {}, {})


def test_a_wrong_query_is_rejected(processor):
    code, remark = refusal(processor.query_assignment, body=b'{"topic":"T","consumerGroup":"G"}')
    assert (code, "clientId" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    body = QUERY % (b"c", b"CLUSTERING", b"AVG", b"../T")
    assert refusal(processor.query_assignment, body=body)[0] == ResponseCode.INVALID_PARAMETER


def mode_body(topic: str = "T", group: str = "G", mode: str = "POP") -> bytes:
    return msgspec.json.encode({"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": 2})


async def test_a_mode_that_is_set_counts_for_the_next_query(processor, parts, modes, members):
    members("c1")

    assert call(processor.set_message_request_mode, body=mode_body()) == Answered(0, None, {}, b"")
    assert modes.mode_of("T", "G") == SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, 2)
    assert parts.groups.contains("G")
    assert assigned(await ask(processor, "c1")) == ["POP a-1", "POP b-1"]
    call(processor.set_message_request_mode, body=mode_body(mode="PULL"))
    assert assigned(await ask(processor, "c1")) == ["PULL a0", "PULL a1", "PULL b0", "PULL b1"]


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (mode_body(topic="%RETRY%G"), ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"),
        (mode_body(topic="No"), ResponseCode.TOPIC_NOT_EXIST, "topic[No] not exist"),
        (mode_body(group="No"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group No does not exist"),
        (mode_body(group="../G"), ResponseCode.INVALID_PARAMETER, "../G"),
        (b"{}", ResponseCode.INVALID_PARAMETER, "the topic '' is illegal"),
        (mode_body(mode="PUSH"), ResponseCode.SYSTEM_ERROR, "PUSH"),
    ],
)
def test_a_wrong_mode_is_rejected(processor, parts, modes, body: bytes, code: ResponseCode, remark: str):
    parts.groups._config = parts.config.model_copy(update={"auto_create_subscription_group": False})
    found, text = refusal(processor.set_message_request_mode, body=body)

    assert (found, remark in text) == (code, True), text
    assert modes.table == {}
