"""The recorded C++, Go and Node clients played against our running servers; each answer compared with the recorded one.

Their frames go out in the recorded order, and each answer is awaited in its turn. What the recorded broker had from
others is made up for: queues are filled to the offsets the client was told, and a held pull that another client's
message woke is woken by one of ours. What may differ, and by which rule, stands in `alike` and its helpers; all else is
equal.
"""

import gzip
import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.golden_frames import FOREIGN, GOLDEN, GoldenFrame, frames
from tests.support.our_servers import Cluster
from tests.support.raw_client import RawAnswer, RawClient
from tests.support.waiting import wait_until

TOPIC = "GoldenTopic"
MASTER = "127.0.0.1:30911"
SLAVE = b',1:"127.0.0.1:30921"'
SENDS = (10, 310, 320)
PULL, COMMIT, ROUTE, NOTIFY, MAX_OFFSET = 11, 15, 105, 40, 30
ID = re.compile(r"[0-9A-F]{32}")
ROUTE_LIMIT_S = 15.0  # half the interval of a broker that would register at its turns alone


def links() -> dict[int, str]:
    """Return the server of each recorded connection: ns, broker-a or broker-a-slave."""
    lines = gzip.decompress((GOLDEN / "session.jsonl.gz").read_bytes()).splitlines()
    return {row["conn"]: row["map"] for row in map(json.loads, lines)}


def fields_of(frame: GoldenFrame) -> dict[str, str]:
    """The fields of a request, those of SEND_MESSAGE_V2 under their long names."""
    fields = dict(frame.command().header or {})
    if frame.code in (310, 320):
        names = {"b": "topic", "e": "queueId", "i": "properties"}
        fields = {names.get(key, key): value for key, value in fields.items()}
    return fields


def header_of(frame: GoldenFrame) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(frame.header())
    return header


@dataclass
class Replay:
    """One client's story."""

    cluster: Cluster
    story: list[GoldenFrame]
    answered: dict[tuple[int, int], GoldenFrame] = field(default_factory=dict)
    clients: dict[int, RawClient] = field(default_factory=dict)
    asked: dict[tuple[int, int], GoldenFrame] = field(default_factory=dict)
    arrived: dict[tuple[int, int], RawAnswer] = field(default_factory=dict)
    notified: list[RawAnswer] = field(default_factory=list)
    stored: Counter[int] = field(default_factory=Counter)
    delayed: Counter[int] = field(default_factory=Counter)
    compared: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.helper = RawClient(self.cluster.broker.address)
        where = {"ns": self.cluster.address, "broker-a": self.cluster.broker.address}
        servers = links()
        for conn in {frame.conversation[0] for frame in self.story}:
            self.clients[conn] = RawClient(where[servers[conn]])
        for frame in self.story:
            if frame.flag & 1:
                self.answered[frame.conversation[0], frame.opaque] = frame

    def close(self) -> None:
        for client in [self.helper, *self.clients.values()]:
            client.close()

    # -- what others did

    def fill(self) -> None:
        """Fill the queues to where they were: one tagged message each, so that something is found, then others."""
        for queue_id, start in self.starts().items():
            for number in range(start):
                self.send_other(queue_id, "TAGS\x01TagA\x02" if number == 0 else "")

    def starts(self) -> dict[int, int]:
        """The offset at which each queue was when the client came: told by its first send, else by its first pull."""
        found: dict[int, int] = {}
        for codes in (SENDS, (PULL,)):
            for frame in self.story:
                answer = self.answered.get((frame.conversation[0], frame.opaque))
                if frame.code not in codes or frame.flag & 1 or answer is None:
                    continue
                fields, told = fields_of(frame), header_of(answer)["extFields"]
                if fields["topic"] == TOPIC and "DELAY\x01" not in fields.get("properties", ""):
                    found.setdefault(int(fields["queueId"]), int(told.get("queueOffset", told.get("maxOffset"))))
        return found

    def send_other(self, queue_id: int, properties: str) -> None:
        fields = {
            "a": "PG_Other", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000",
            "h": "0", "i": properties, "j": "0", "k": "false", "l": "0", "m": "false",
        }  # fmt: skip
        answer = self.helper.ask(310, fields, b"of another client")
        assert answer.code == 0, answer
        self.stored[queue_id] += 1

    def max_offset(self, queue_id: int) -> int:
        return int(self.helper.ask(MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)}).fields["offset"])

    def await_delayed(self, queue_id: int) -> None:
        wanted = self.stored[queue_id] + self.delayed[queue_id]
        wait_until(lambda: self.max_offset(queue_id) >= wanted, f"the delayed message of queue {queue_id} has come")
        self.stored[queue_id] += self.delayed.pop(queue_id, 0)

    # -- the story

    def play(self) -> None:
        for frame in self.story:
            if not frame.flag & 1:
                self.request(frame)
            else:
                self.expect(frame)

    def request(self, frame: GoldenFrame) -> None:
        if frame.code == NOTIFY:
            return  # the broker's own, compared at the end
        key = (frame.conversation[0], frame.opaque)
        self.asked[key] = frame
        self.clients[key[0]].send(frame.data)

    def expect(self, recorded: GoldenFrame) -> None:
        key = (recorded.conversation[0], recorded.opaque)
        request = self.asked[key]
        if request.code == PULL:
            self.wake(request, recorded)
        seen = self.answer(key)
        if request.code == ROUTE and header_of(recorded)["code"] == 0:
            seen = self.known_route(request, seen)
        self.alike(request, recorded, seen)
        self.compared[request.code] += 1

    def answer(self, key: tuple[int, int]) -> RawAnswer:
        while key not in self.arrived:
            came = self.clients[key[0]].read()
            assert came is not None, f"closed before opaque {key[1]} was answered"
            if came.header["flag"] & 1:
                self.arrived[key[0], came.header["opaque"]] = came
            else:
                self.notified.append(came)
        return self.arrived[key]

    def known_route(self, request: GoldenFrame, seen: RawAnswer) -> RawAnswer:
        """The broker tells the name server of a new topic at once, yet not before it answers its client."""
        deadline = time.monotonic() + ROUTE_LIMIT_S
        while seen.code != 0 and time.monotonic() < deadline:
            time.sleep(0.02)
            seen = self.clients[request.conversation[0]].exchange(request.data, request.opaque)
        return seen

    def wake(self, request: GoldenFrame, recorded: GoldenFrame) -> None:
        """Do what others did while this pull was held."""
        fields, told = fields_of(request), header_of(recorded)["extFields"]
        queue_id = int(fields["queueId"])
        if fields["topic"] != TOPIC or int(fields["queueOffset"]) < self.stored[queue_id]:
            return
        self.await_delayed(queue_id)
        while self.stored[queue_id] < int(told["maxOffset"]):
            self.send_other(queue_id, "TAGS\x01TagA\x02")

    # -- comparing

    def alike(self, request: GoldenFrame, recorded: GoldenFrame, seen: RawAnswer) -> None:
        wanted = header_of(recorded)
        if request.code in SENDS:
            self.sent(request, wanted["extFields"], seen.fields)
        if request.code == PULL:
            self.pulled(request, wanted["extFields"], seen)
        assert seen.header == wanted, f"frame {recorded.number}, the answer to {request.number} ({request.code})"
        if request.code != PULL:
            address = self.cluster.broker.address.encode()
            body = recorded.body().replace(SLAVE, b"").replace(MASTER.encode(), address)
            assert seen.body == body, f"frame {recorded.number}"

    def sent(self, request: GoldenFrame, wanted: dict[str, str], seen: dict[str, str]) -> None:
        """Ids that a broker makes have their own values; the schedule topic's past was not replayed."""
        fields = fields_of(request)
        properties = fields["properties"]
        same(wanted, seen, "msgId", wanted["msgId"].count(",") + 1)
        if "UNIQ_KEY\x01" not in properties and "transactionId" in wanted:
            same(wanted, seen, "transactionId", 1)
        queue_id = int(fields["queueId"])
        if "DELAY\x01" in properties:
            assert int(seen["queueOffset"]) >= 0
            seen["queueOffset"] = wanted["queueOffset"]
            self.delayed[queue_id] += 1
        else:
            self.stored[queue_id] += len(wanted["msgId"].split(","))

    def pulled(self, request: GoldenFrame, wanted: dict[str, str], seen: RawAnswer) -> None:
        """The recorded broker may not have dispatched yet what it had acknowledged; ours has."""
        fields = fields_of(request)
        end = max(int(wanted["maxOffset"]), self.stored[int(fields["queueId"])])
        if wanted["nextBeginOffset"] == wanted["maxOffset"]:
            wanted["nextBeginOffset"] = str(end)
        wanted["maxOffset"] = str(end)
        assert bool(seen.body) == (seen.code == 0)
        for own in self.own(int(fields["queueId"]), int(fields["queueOffset"])):
            assert own in seen.body

    def own(self, queue_id: int, offset: int) -> list[bytes]:
        """The bodies of the client's own messages with the tag that it consumes, from an offset of a queue on."""
        found = []
        for key, frame in self.asked.items():
            if frame.code not in (10, 310) or key not in self.arrived:
                continue
            fields = fields_of(frame)
            tagged = "TAGS\x01TagA\x02" in fields["properties"] and "DELAY\x01" not in fields["properties"]
            place = int(self.arrived[key].fields["queueOffset"])
            if tagged and int(fields["queueId"]) == queue_id and place >= offset:
                found.append(frame.body())
        return found


def same(wanted: dict[str, str], seen: dict[str, str], name: str, number: int) -> None:
    """The field has that many ids as an IPv4 host makes them (the recorded one had IPv6); they are equal then."""
    parts = seen[name].split(",")
    assert len(parts) == number, seen
    assert all(ID.fullmatch(part) for part in parts), seen
    seen[name] = wanted[name]


@pytest.mark.parametrize("client", FOREIGN)
@pytest.mark.long
def test_a_recorded_client_gets_the_recorded_answers(cluster: Cluster, client: str):
    cluster.make_topic(TOPIC)
    servers = links()
    story = [
        frame for frame in frames() if frame.client == client and servers[frame.conversation[0]] != "broker-a-slave"
    ]
    replay = Replay(cluster, story)
    try:
        replay.fill()
        replay.play()
    finally:
        replay.close()

    assert replay.compared == Counter(
        replay.asked[frame.conversation[0], frame.opaque].code for frame in story if frame.flag & 1
    )
    # What the recorded broker held until the client left, ours has not answered either; the commits were simply late.
    early = [key for key in replay.arrived if key not in replay.answered]
    assert {replay.asked[key].code for key in early} <= {COMMIT}
    (group,) = {frame.command().header["consumerGroup"] for frame in story if frame.code == NOTIFY}
    assert replay.notified, "the group learns of its new member"
    for notice in replay.notified:
        assert (notice.code, notice.header["flag"], notice.fields) == (NOTIFY, 2, {"consumerGroup": group})
