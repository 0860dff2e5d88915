"""Our broker answers the requests of tests/support/pop_script.py as Apache's did (tests/golden/pop)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.remoting.bodies.offset import ConsumerOrderInfoSerializeWrapper
from rocketbroker.codec.remoting.remoting_command import Command
from tests.support.our_servers import OurServers
from tests.support.pop_script import GROUP, SETTINGS, PopExchange, PopScript, fields_of, golden_exchanges, handle_of

pytestmark = pytest.mark.long

# What RocketMQ says where it says nothing.
SILENT = {None, "", "not set any response code"}
# Ours say why, where RocketMQ repeats the status of the read that found nothing.
OWN_REMARKS = {"wait beside too many others"}
# What depends on the time, and on the number of pops before: all but these texts.
CONSTANT = {"popTime": {"0"}, "reviveQid": {"999"}}
# The time that is left, some ms of it.
LEFT = {"change in order"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PopExchange]]:
    servers = OurServers(tmp_path_factory.mktemp("ours"))
    try:
        script = PopScript(servers.broker(servers.namesrv().address, None, **SETTINGS).address)
        try:
            yield {each.name: each for each in script.run()}
        finally:
            script.close()
        assert servers.errors() == []
    finally:
        servers.close()


def stable(fields: dict[str, str], name: str) -> dict[str, str]:
    left: dict[str, set[str]] = {"invisibleTime": set()} if name in LEFT else {}
    constant = CONSTANT | left
    return {key: text if text in constant.get(key, {text}) else "*" for key, text in fields.items()}


def content(answer: Command) -> Any:
    """Return what a client sees of the body, without times."""
    body = bytes(answer.body)
    if body.startswith(b"{"):
        found = json.loads(body)
        # RocketMQ answers them from a HashSet, in no order.
        found.get("messageQueueAssignments", []).sort(key=lambda each: each["messageQueue"]["queueId"])
        return found
    if not body:
        return body
    return [
        (
            each.topic, each.queue_id, each.queue_offset, each.reconsume_times, each.flag, each.sys_flag, each.body,
            {key: re.sub(rb"\d{13} (\d+) \d ", rb"* \1 * ", bytes(text)) if key != b"1ST_POP_TIME" else b"*"
             for key, text in properties(each.properties_bytes)},
        )
        for each in decode_messages(body)
    ]  # fmt: skip


def properties(text: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (each.partition(b"\x01") for each in bytes(text).split(b"\x02") if each)
    return [(key, value) for key, _, value in pairs]


@pytest.mark.proves("POP and the gRPC port", "answers about POP are those of Apache's broker")
@pytest.mark.parametrize("golden", golden_exchanges(), ids=lambda each: each.name)
def test_an_answer_is_as_apaches(ours: dict[str, PopExchange], golden: PopExchange):
    theirs, answer = golden.answer(), ours[golden.name].answer()

    assert answer.code == theirs.code, answer.remark
    assert content(answer) == content(theirs)
    if theirs.code and not answer.header:
        # A refusal has no fields here, RocketMQ's has zeros: clients take them for the same.
        assert set(fields_of(theirs).values()) <= {"", "0", "false"} or golden.name in OWN_REMARKS
    else:
        assert stable(fields_of(answer), golden.name) == stable(fields_of(theirs), golden.name)
    if theirs.remark not in SILENT and golden.name not in OWN_REMARKS:
        beginning = re.split(r"[\d\[,.!]| does not", theirs.remark or "")[0]
        assert beginning
        assert (answer.remark or "").startswith(beginning)


def test_all_of_the_script_is_recorded(ours: dict[str, PopExchange]):
    assert list(ours) == [each.name for each in golden_exchanges()]


def test_a_stop_writes_the_batches_of_ordered_pops(tmp_path: Path):
    """Apache's broker on the same store has nothing else; an open check point keeps our own place back."""
    servers = OurServers(tmp_path)
    try:
        broker = servers.broker(servers.namesrv().address)
        script = PopScript(broker.address)
        script.make("PopOpen", 1)
        script.make("PopOrdered", 3)
        assert script.pop("", "PopOpen").answer().code == 0
        popped = script.pop("", "PopOrdered", order="true", maxMsgNums=2, attemptId="one").answer()
        assert script.acknowledge("", "PopOrdered", 0, handle_of(popped, 0, True)).answer().code == 0
        script.close()
        assert broker.stop() == 0
        text = (broker.store / "config" / "consumerOrderInfo.json").read_bytes()
    finally:
        servers.close()
    batch = ConsumerOrderInfoSerializeWrapper.decode(text).table[f"PopOrdered@{GROUP}"][0]
    assert (batch.offset_list, batch.commit_offset_bit, batch.attempt_id) == ([0, 1], 1, "one")
