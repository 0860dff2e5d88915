"""Strangers that hold pulls: what they cost others and the broker's memory."""

import contextlib
import json

import pytest

from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.our_servers import Cluster, OurServer, OurServers, cpu_seconds
from tests.support.raw_client import RawClient, raw_frame, raw_header
from tests.support.raw_requests import pull_fields, send_fields

SUBSCRIPTION, SUSPEND = 4, 2
CONNECTIONS, PULLS = 8, 16_384
MOST_HELD = 100_000
SENDS, WINDOW = 4_000, 200
MIB = 1 << 20


@pytest.fixture
def cluster(servers: OurServers) -> Cluster:
    namesrv = servers.namesrv()
    return Cluster(namesrv, servers.broker(namesrv.address, maxSuspendTimeoutMillis=600_000))


def send_all(client: RawClient, broker: OurServer) -> float:
    """Send SENDS messages to queue 0 of T and return the CPU seconds that the broker took for them."""
    frames = [
        raw_frame(raw_header(RequestCode.SEND_MESSAGE_V2, send_fields("T", d="1"), number), b"body")
        for number in range(SENDS)
    ]
    begin = cpu_seconds(broker)
    for start in range(0, SENDS, WINDOW):
        client.send(b"".join(frames[start : start + WINDOW]))
        for number in range(start, start + WINDOW):
            assert client.answer(number).code == 0
    return cpu_seconds(broker) - begin


def held_pulls(offset: int, count: int, tag: str) -> bytes:
    fields = pull_fields(
        "T", offset, sysFlag=str(SUBSCRIPTION | SUSPEND), suspendTimeoutMillis="600000", subscription=tag
    )
    return b"".join(raw_frame(raw_header(RequestCode.PULL_MESSAGE, fields, number)) for number in range(count))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_pulls_for_a_tag_that_nobody_sends_slow_no_send(cluster: Cluster):
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(RawClient(cluster.broker.address))
        send_all(sender, cluster.broker)  # makes the topic
        alone = send_all(sender, cluster.broker)
        before = cluster.broker.rss_bytes()
        pullers = [stack.enter_context(RawClient(cluster.broker.address)) for _ in range(CONNECTIONS)]
        refused = 0
        left = MOST_HELD
        for puller in pullers:
            frames = held_pulls(2 * SENDS, PULLS, "nobody")
            puller.send(frames)
            beyond = max(PULLS - left, 0)
            left -= PULLS - beyond
            for _ in range(beyond):
                answer = puller.read()
                assert answer is not None
                assert answer.code == ResponseCode.SYSTEM_BUSY, answer.remark
                assert answer.remark.startswith("maxHeldPulls: 100,000 pulls are held and the limit is 100,000"), answer
                refused += 1
        # All of them have been read, once a later request of each connection is answered.
        for puller in pullers[: MOST_HELD // PULLS]:
            assert puller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=PULLS).code == 0
        held = cluster.broker.rss_bytes()
        beside = send_all(sender, cluster.broker)

    print(
        f"{SENDS} sends took the broker {alone:.2f} s alone, {beside:.2f} s beside {MOST_HELD:,} held pulls in "
        f"{(held - before) / MIB:,.0f} MiB"
    )
    assert refused == CONNECTIONS * PULLS - MOST_HELD
    assert held - before < 300 * MIB
    assert beside < 4 * alone


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("subscription", "count"), [("x" * (8 * MIB), 150), ("a||" * (14 * MIB // 3), 3)], ids=["8 MiB", "tags"]
)
def test_a_pull_with_a_long_subscription_keeps_nothing(cluster: Cluster, subscription: str, count: int):
    with contextlib.ExitStack() as stack:
        bystander = stack.enter_context(RawClient(cluster.broker.address))
        send_all(bystander, cluster.broker)
        before = cluster.broker.rss_bytes()
        for _ in range(count):
            client = stack.enter_context(RawClient(cluster.broker.address))
            # The peer may close before it has read all of a header that is too long by itself.
            with contextlib.suppress(ConnectionError):
                client.send(held_pulls(SENDS, 1, subscription))
                answer = client.read()
                assert answer is None or answer.code != 0
        assert bystander.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).code == 0
        assert cluster.broker.rss_bytes() - before < 256 * MIB


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_few_bytes_of_send_backs_store_little(cluster: Cluster):
    body = bytes(4 * MIB - 4096)
    with RawClient(cluster.broker.address) as client:
        for number in range(20):
            client.exchange(raw_frame(raw_header(RequestCode.SEND_MESSAGE_V2, send_fields("T"), number), body), number)
        before = log_bytes(client)
        codes = [client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, send_back_fields(0), opaque=n).code for n in range(500)]
        after = log_bytes(client)
        offset = 0
        given = []
        while offset < 20:
            answer = client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", offset, maxMsgNums="32"))
            offset = int(answer.fields["nextBeginOffset"])
            position = 0
            while position < len(answer.body):
                given.append(int.from_bytes(answer.body[position + 28 : position + 36], "big"))
                position += int.from_bytes(answer.body[position : position + 4], "big")
        again = [client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, send_back_fields(at)).code for at in given]

    print(f"{codes.count(0)} of 500 send-backs stored {(after - before) / MIB:,.0f} MiB")
    assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}
    assert after - before < 200 * MIB
    assert again == [0] * 20, "a consumer that fails at all that it was given"


def send_back_fields(offset: int) -> dict[str, str]:
    return {"offset": str(offset), "group": "CG_Bad", "delayLevel": "3", "originTopic": "T"}


def log_bytes(client: RawClient) -> int:
    """End of the log."""
    table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return int(table["commitLogMaxOffset"])
