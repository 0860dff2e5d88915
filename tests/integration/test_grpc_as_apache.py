"""Our gRPC port answers the calls of tests/support/grpc_script.py as Apache's proxy did (tests/golden/grpc).

The port is in the broker's process, or in that of mqproxy.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from tests.support.grpc_script import Exchange, GrpcScript, golden_exchanges, prepare
from tests.support.grpc_servers import our_proxy, our_server
from tests.support.our_servers import OurServers

pytestmark = pytest.mark.long

# What depends on the time, on addresses, and on ids that a server makes.
VARIABLE = {
    "receiptHandle", "recallHandle", "bornHost", "storeHost", "storeTimestamp", "deliveryTimestamp", "host", "port",
    "nonce", "spentTimeMills",
}  # fmt: skip
# Quotas of lite topics, which are not supported.
LACKING = {"liteSubscriptionQuota", "maxLiteTopicSize"}
# Brokers do not know the consumers of mqproxy, and pass nothing on to them.
VERIFICATIONS = {
    f"verification answered by {code}"
    for code in ("OK", "FAILED_TO_CONSUME_MESSAGE", "MESSAGE_CORRUPTED", "VERIFY_FIFO_MESSAGE_UNSUPPORTED")
}
OF_THE_BROKER = {
    "send number 430", "receive before a verification", "ack after a verification", *VERIFICATIONS,
    *(f"{each}: the administrator's answer" for each in VERIFICATIONS),
}  # fmt: skip
# Differences that are kept (docs/reference/grpc.md): codes that say more than INTERNAL_SERVER_ERROR or a wrong type.
OWN_CODES = {
    "send to an unknown topic": "TOPIC_NOT_FOUND",
    "receive of an unknown topic": "TOPIC_NOT_FOUND",
    "change of an unknown topic": "TOPIC_NOT_FOUND",
    "receive with wrong SQL": "ILLEGAL_FILTER_EXPRESSION",
    "change by nonsense": "INVALID_RECEIPT_HANDLE",
    "ack by nonsense": "INVALID_RECEIPT_HANDLE",
    "ack by nothing": "INVALID_RECEIPT_HANDLE",
    "ack by two handles": "INVALID_RECEIPT_HANDLE",
    "forward by nonsense": "INVALID_RECEIPT_HANDLE",
    "receive of 0 messages": "BAD_REQUEST",
    "receive of less than 0 messages": "BAD_REQUEST",
    "send a negative priority": "BAD_REQUEST",
}
# An entry for each message, where Apache's proxy has one for the batch; lite topics are not supported.
OWN_ANSWERS = {"send three", "method SyncLiteSubscription"}
# Apache's text is a number, or that of its gRPC library.
OWN_TEXTS = {
    "forward",
    "forward with another topic",
    *(f"method {each}" for each in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")),
}
OWN_FIELDS = {
    # The offset is in a topic of the broker that has other messages too.
    "send for later": {"offset"},
    "check of a transaction": {"bornTimestamp"},
    # Apache's proxy drops the consumer's own words.
    **{f"{each}: the administrator's answer": {"remark"} for each in VERIFICATIONS},
}
# Apache's proxy puts these before some texts.
PREFIX = re.compile(r"org\.apache\.\S+Exception: |CODE: \d+  DESC: |process client telemetryCommand failed\. ")
WORDS = re.compile(r"[A-Za-z']+")


@pytest.fixture(scope="module", params=[our_server, our_proxy], ids=["broker", "mqproxy"])
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Exchange]]:
    servers = OurServers(tmp_path_factory.mktemp("ours"))
    try:
        server = request.param(servers)
        prepare(server)
        script = GrpcScript(server)
        try:
            yield {each.name: each for each in script.run()}
        finally:
            script.close()
        assert servers.errors() == []
    finally:
        servers.close()


def stable(value: Any, texts: list[str], variable: set[str]) -> Any:
    """Return a reply without what varies; put the texts of its statuses into a list instead."""
    if isinstance(value, list):
        return [stable(each, texts, variable) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"code", "message"}:
        texts.append(value["message"])
        return {"code": value["code"]}
    return {
        name: "*" if name in variable else stable(each, texts, variable)
        for name, each in sorted(value.items())
        if name not in LACKING
    }


def with_code(value: Any, code: str) -> Any:
    """Return a reply whose refusals have another code."""
    if isinstance(value, list):
        return [with_code(each, code) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"code"}:
        return value if value["code"] in {"OK", "MULTIPLE_RESULTS"} else {"code": code}
    return {name: with_code(each, code) for name, each in value.items()}


def words(text: str) -> list[str]:
    """Return the first three words of a text."""
    return [each.lower() for each in WORDS.findall(PREFIX.sub("", text))[:3]]


@pytest.mark.proves("POP and the gRPC port", "replies of the gRPC port are those of Apache's proxy")
@pytest.mark.parametrize(
    "golden", [each for each in golden_exchanges() if each.name not in OWN_ANSWERS], ids=lambda each: each.name
)
def test_an_answer_is_as_apaches(ours: dict[str, Exchange], golden: Exchange):
    if golden.name in OF_THE_BROKER - set(ours):
        return
    answer = ours[golden.name]
    variable = VARIABLE | OWN_FIELDS.get(golden.name, set())
    texts, their_texts = [answer.details], [golden.details]
    found, expected = stable(answer.replies, texts, variable), stable(golden.replies, their_texts, variable)

    assert answer.status == golden.status, texts
    if golden.name in OWN_CODES:
        assert found == with_code(expected, OWN_CODES[golden.name]), texts
        assert found != expected, "the codes no longer differ"
    else:
        assert found == expected, texts
        if golden.name not in OWN_TEXTS:
            assert [words(text) for text in texts] == [words(text) for text in their_texts]


def test_a_batch_has_an_entry_for_each_message(ours: dict[str, Exchange]):
    [theirs] = next(each for each in golden_exchanges() if each.name == "send three").replies
    [reply] = ours["send three"].replies

    assert (reply["status"], len(theirs["entries"])) == (theirs["status"], 1)
    assert [each["offset"] for each in reply["entries"]] == ["4", "5", "6"]
    assert reply["entries"][0]["transactionId"] == theirs["entries"][0]["transactionId"]


def test_lite_topics_are_unimplemented(ours: dict[str, Exchange]):
    assert ours["method SyncLiteSubscription"].status == "UNIMPLEMENTED"


def test_the_calls_are_those_that_were_recorded(ours: dict[str, Exchange], request: pytest.FixtureRequest):
    golden = [each.name for each in golden_exchanges()]

    assert list(ours) == [name for name in golden if name in ours]
    assert {name for name in golden if name not in ours} == (OF_THE_BROKER if "mqproxy" in request.node.name else set())
