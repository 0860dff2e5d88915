"""Requests about popping, sent to a broker one after the other; what Apache's broker answered is in tests/golden/pop.

To record it again, start Apache's broker with a name server and the settings of ``SETTINGS``, and run

    python -m tests.support.pop_script HOST:PORT > tests/golden/pop/exchanges.jsonl

Each line has the name of an exchange and its frames as bytes in hex. Answers depend on earlier requests, so the script
is run as a whole. What needs several attempts is recorded once it succeeds.
"""

import base64
import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.pop_info import PoppedQueue, parse_start_offset_info, pop_retry_topic
from rocketbroker.codec.remoting.frame import decode_frame
from rocketbroker.codec.remoting.remoting_command import Command
from tests.support.raw_client import TIMEOUT_S, raw_frame, raw_header

GOLDEN = Path(__file__).parent.parent / "golden" / "pop" / "exchanges.jsonl"
SETTINGS: dict[str, str | int] = {
    "enablePropertyFilter": "true",
    "autoCreateSubscriptionGroup": "false",
    "maxPopPollingSize": 1,
}
GROUP = "CG_Pop"
CLIENT_ID = "192.0.2.2@pop"
LONG_MS = 60_000
YEAR_MS = 365 * 86_400_000
RETURN_LIMIT_S = 60


class PopExchange(NamedTuple):
    """A request and its answer, as whole frames."""

    name: str
    request: bytes
    response: bytes

    def answer(self) -> Command:
        return decode_frame(memoryview(self.response)[4:])

    def question(self) -> Command:
        return decode_frame(memoryview(self.request)[4:])


def golden_exchanges() -> list[PopExchange]:
    """Return what Apache's broker 5.5.0 answered, in order."""
    lines = (json.loads(line) for line in GOLDEN.read_text().splitlines())
    return [
        PopExchange(line["name"], bytes.fromhex(line["request"]), bytes.fromhex(line["response"])) for line in lines
    ]


class _Connection:
    """A connection to a broker; answers come in the order of the requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> bytes:
        """Send a request; return its frame."""
        self._opaque += 1
        frame = raw_frame(raw_header(code, fields, self._opaque), body)
        self._socket.sendall(frame)
        return frame

    def receive(self) -> bytes:
        """Return the frame of the next answer; requests of the broker are left out."""
        while True:
            head = self._stream.read(4)
            frame: bytes = head + self._stream.read(*struct.unpack(">i", head))
            if decode_frame(memoryview(frame)[4:]).flag & 1:
                return frame


class PopScript:
    """Runs the script with a broker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection = _Connection(address)

    def close(self) -> None:
        self._connection.__exit__(None, None, None)

    def run(self) -> Iterator[PopExchange]:
        """Yield each exchange that is worth recording."""
        yield from self._refusals()
        yield from self._limits()
        yield from self._filters()
        yield from self._returns()
        yield from self._changes()
        yield from self._batches()
        yield from self._order()
        yield from self._polling()
        yield from self._assignments()
        yield from self._priorities()

    # -- requests

    def ask(self, name: str, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> PopExchange:
        request = self._connection.send(code, fields, body)
        return PopExchange(name, request, self._connection.receive())

    def make(self, topic: str, number: int, tags: str = "A", queues: int = 1, **more: str) -> None:
        """Make a topic and the group, and send messages with the tags in turn."""
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **more,
        }  # fmt: skip
        assert self.ask("", 17, fields).answer().code == 0
        for group in (GROUP, "CG_PopSql", "CG_PopPart", "CG_PopEnd"):
            assert self.ask("", 200, body=json.dumps({"groupName": group}).encode()).answer().code == 0
        self.send(topic, 0, number, tags)

    def send(self, topic: str, first: int, number: int, tags: str = "A", properties: str = "") -> None:
        for n in range(first, first + number):
            tag = tags.split(",")[n % len(tags.split(","))]
            fields = {
                "a": "PG_Pop", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": time.time_ns() // 10**6, "h": n,
                "i": f"TAGS\x01{tag}\x02UNIQ_KEY\x01{topic}{n}\x02{properties}", "j": 0, "k": "false", "m": "false",
            }  # fmt: skip
            answer = self.ask("", 310, fields, b"body %d" % n).answer()
            assert answer.code == 0, answer.remark

    def _fields(self, topic: str, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "consumerGroup": GROUP, "topic": topic, "queueId": 0, "maxMsgNums": 32, "invisibleTime": LONG_MS,
            "pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*",
            "order": "false", **options,
        }  # fmt: skip

    def pop(self, name: str, topic: str, **options: Any) -> PopExchange:
        return self.ask(name, 200050, self._fields(topic, options))

    def _pop_returned(self, name: str, topic: str, number: int, **options: Any) -> PopExchange:
        """Pop when so many messages have returned, all of one check point at once."""
        deadline = time.monotonic() + RETURN_LIMIT_S
        while time.monotonic() < deadline:
            peeked = self.ask("", 200052, self._fields(pop_retry_topic(topic, GROUP), {"queueId": -1})).answer()
            if peeked.code == 0 and len(messages_of(peeked)) >= number:
                return self.pop(name, topic, **options)
            time.sleep(0.1)
        raise AssertionError(f"{number} messages of {topic} have not returned within {RETURN_LIMIT_S} s")

    def acknowledge(self, name: str, topic: str, offset: int, handle: str, **options: Any) -> PopExchange:
        fields = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "extraInfo": handle, "offset": offset}
        return self.ask(name, 200051, {**fields, **options})

    def change(self, name: str, topic: str, offset: int, handle: str, invisible_ms: int) -> PopExchange:
        fields = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "extraInfo": handle, "offset": offset}
        return self.ask(name, 200053, {**fields, "invisibleTime": invisible_ms})

    def acknowledge_bits(self, name: str, topic: str, popped: Command, bits: int) -> PopExchange:
        start, fields = start_of(popped), fields_of(popped)
        ack = {
            "c": GROUP, "t": topic, "r": "0", "so": start, "q": 0, "rq": int(fields["reviveQid"]),
            "pt": int(fields["popTime"]), "it": int(fields["invisibleTime"]),
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
        }  # fmt: skip
        return self.ask(name, 200151, body=json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode())

    # -- parts

    def _refusals(self) -> Iterator[PopExchange]:
        topic = "PopRefused"
        self.make(topic, 3)
        yield self.pop("pop 33 messages", topic, maxMsgNums=33)
        yield self.pop("pop an unknown topic", "PopNowhere")
        yield self.pop("pop an unknown queue", topic, queueId=7)
        yield self.pop("pop by an unknown group", topic, consumerGroup="CG_Nobody")
        yield self.pop("pop with a bad filter", topic, expType="SQL92", exp="a >")
        yield self.pop("pop too late", topic, bornTime=1, pollTime=1)
        popped = self.pop("pop all", topic)
        yield popped
        yield self.pop("pop an empty queue", topic)
        handle = handle_of(popped.answer(), 0)
        yield self.acknowledge("acknowledge in an unknown topic", "PopNowhere", 0, handle)
        yield self.acknowledge("acknowledge in an unknown queue", topic, 0, handle, queueId=7)
        yield self.acknowledge("acknowledge behind the end", topic, 99, handle)
        yield self.acknowledge("acknowledge with a handle of no pop", topic, 0, "0 1 60000 0 0 broker-a 0 0")
        yield self.acknowledge("acknowledge", topic, 0, handle)
        yield self.acknowledge("acknowledge again", topic, 0, handle)
        yield self.change("change behind the end", topic, 99, handle, LONG_MS)
        yield self.change("change with a handle of no pop", topic, 1, "0 1 60000 0 0 broker-a 0 0", LONG_MS)
        yield self.ask("acknowledge nothing in a batch", 200151, body=b'{"brokerName":"broker-a","acks":[]}')
        yield self.ask("a batch without a body", 200151)

    def _limits(self) -> Iterator[PopExchange]:
        topic, other = "PopLimits", "PopElsewhere"
        self.make(topic, 1)
        self.make(other, 2)
        yield self.pop("pop for no time", topic, invisibleTime=0)
        yield self._pop_returned("pop what was popped for no time", topic, 1)
        self.send(topic, 1, 2)
        yield self.pop("pop for a year", topic, maxMsgNums=1, invisibleTime=YEAR_MS)
        yield self.pop("pop and wait for less than no time", topic, maxMsgNums=1, pollTime=-1)
        yield self.pop("wait for less than no time", topic, pollTime=-1)
        waiting = {
            "consumerGroup": GROUP,
            "topic": topic,
            "queueId": 0,
            "pollTime": -1,
            "order": "false",
            "bornTime": 0,
        }
        yield self.ask("wait for a message for less than no time", 200054, waiting)
        handle = handle_of(self.pop("", other).answer(), 1)
        yield self.acknowledge("acknowledge with a handle of another topic", topic, 1, handle)
        yield self.change("change with a handle of another topic", topic, 1, handle, LONG_MS)
        yield self.change("change for no time", other, 1, handle, 0)

    def _filters(self) -> Iterator[PopExchange]:
        topic = "PopFiltered"
        self.make(topic, 6, "A,B,C")
        yield self.pop("pop with tags", topic, exp="A || C")
        yield self.pop("pop with tags at the end", topic, exp="A || C")
        yield self.pop("pop with SQL92", topic, consumerGroup="CG_PopSql", expType="SQL92", exp="TAGS = 'B'")
        yield self.pop("pop part", topic, consumerGroup="CG_PopPart", maxMsgNums=2, queueId=-1)
        yield self.pop("pop from the end", topic, consumerGroup="CG_PopEnd", initMode=1)

    def _returns(self) -> Iterator[PopExchange]:
        topic = "PopReturns"
        self.make(topic, 2)
        popped = self.pop("pop for a second", topic, invisibleTime=1000)
        yield popped
        again = self._pop_returned("pop returned messages", topic, 2)
        yield again
        yield self.acknowledge("acknowledge with an expired handle", topic, 0, handle_of(popped.answer(), 0))
        retry = pop_retry_topic(topic, GROUP)
        yield self.acknowledge("acknowledge a returned message", retry, 0, handle_of(again.answer(), 0))
        yield self.change("change a returned message", retry, 1, handle_of(again.answer(), 1), 1000)
        deadline = time.monotonic() + RETURN_LIMIT_S
        while (third := self.pop("pop a message that returned twice", topic)).answer().code:
            assert time.monotonic() < deadline, "a message has not returned twice"
            time.sleep(0.1)
        yield third

    def _changes(self) -> Iterator[PopExchange]:
        topic = "PopChanged"
        self.make(topic, 2)
        handle = handle_of(self.pop("", topic).answer(), 1)
        yield self.change("change", topic, 1, handle, LONG_MS)
        yield self.change("change with a handle that was changed", topic, 1, handle, LONG_MS)
        yield self.acknowledge("acknowledge with a handle that was changed", topic, 1, handle)

    def _batches(self) -> Iterator[PopExchange]:
        topic = "PopBatch"
        self.make(topic, 8)
        popped = self.pop("pop eight for 2 s", topic, invisibleTime=2000).answer()
        yield self.acknowledge_bits("acknowledge with gaps", topic, popped, 0b00100101)
        yield self.acknowledge_bits("acknowledge more than was popped", topic, popped, 1 << 40)
        yield self._pop_returned("pop what was left in the gaps", topic, 5)

    def _order(self) -> Iterator[PopExchange]:
        topic, order = "PopOrder", {"order": "true", "maxMsgNums": 2}
        self.make(topic, 5)
        first = self.pop("pop in order", topic, attemptId="one", **order)
        yield first
        yield self.pop("pop in order by the same attempt", topic, attemptId="one", **order)
        second = self.pop("pop in order by another attempt", topic, attemptId="two", **order)
        yield second
        yield self.acknowledge("acknowledge in order with an old handle", topic, 0, handle_of(first.answer(), 0, True))
        handle = handle_of(self.pop("", topic, attemptId="one", **order).answer(), 0, True)
        yield self.acknowledge("acknowledge in order what was not popped", topic, 4, handle)
        yield self.acknowledge("acknowledge the first in order", topic, 0, handle)
        yield self.pop("pop in order with one left", topic, attemptId="three", **order)
        yield self.change("change in order", topic, 1, handle, 1)
        time.sleep(0.1)
        again = self.pop("pop in order what returned", topic, attemptId="four", **order)
        yield again
        for offset in (1, 2):
            name = f"acknowledge offset {offset} in order"
            yield self.acknowledge(name, topic, offset, handle_of(again.answer(), offset, True))
        yield self.pop("pop the next in order", topic, attemptId="five", **order)

    def _polling(self) -> Iterator[PopExchange]:
        topic = "PopPolling"
        self.make(topic, 0)
        yield self.pop("wait for nothing", topic, pollTime=300)
        notification = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "pollTime": 200, "order": "false"}
        yield self.ask("notification of nothing", 200054, {**notification, "bornTime": time.time_ns() // 10**6})
        with _Connection(self._address) as other:
            other.send(200050, self._fields(topic, {"pollTime": 20_000}))
            polling = {"consumerGroup": GROUP, "topic": topic, "queueId": 0}
            deadline = time.monotonic() + RETURN_LIMIT_S
            while fields_of((info := self.ask("polling info", 200055, polling)).answer())["pollingNum"] != "1":
                assert time.monotonic() < deadline, "the pop is not held"
                time.sleep(0.05)
            yield info
            yield self.pop("wait beside too many others", topic, pollTime=300)
            self.send(topic, 0, 1)
            other.receive()
        self.send(topic, 1, 1)
        yield self.ask("notification of a message", 200054, {**notification, "bornTime": time.time_ns() // 10**6})
        peek = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "maxMsgNums": 4}
        yield self.ask("peek", 200052, peek)
        # Of a message that SQL92 does not select, RocketMQ notifies as well.
        for expression in (("TAG", "A"), ("TAG", "B"), ("SQL92", "TAGS = 'A'"), ("SQL92", "a >")):
            wanted = dict(zip(("expType", "exp"), expression, strict=True))
            fields = {**notification, "bornTime": 0, **wanted}
            yield self.ask(f"notification of a message by {' '.join(expression)}", 200054, fields)
        self.pop("", topic)
        yield self.ask("peek at nothing", 200052, peek)

    def _assignments(self) -> Iterator[PopExchange]:
        topic = "PopAssigned"
        self.make(topic, 0, queues=2)
        assert self.ask("", 34, body=json.dumps(heartbeat(topic, GROUP, CLIENT_ID)).encode()).answer().code == 0

        def assignment(name: str, **options: Any) -> PopExchange:
            body = {
                "topic": topic, "consumerGroup": GROUP, "clientId": CLIENT_ID, "strategyName": "AVG",
                "messageModel": "CLUSTERING", **options,
            }  # fmt: skip
            return self.ask(name, 400, body=json.dumps(body).encode())

        def mode(name: str, **options: Any) -> PopExchange:
            body = {"topic": topic, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, **options}
            return self.ask(name, 401, body=json.dumps(body).encode())

        deadline = time.monotonic() + RETURN_LIMIT_S
        while b"queueId" not in bytes(assignment("").answer().body):
            assert time.monotonic() < deadline, "the route of the topic does not come"
            time.sleep(0.1)
        yield assignment("queues to pull")
        yield mode("let a group pop")
        yield assignment("queues to pop")
        yield assignment("queues to pop for an unknown client", clientId="192.0.2.3@other")
        yield assignment("queues to pop while broadcasting", messageModel="BROADCASTING")
        yield assignment("queues by an unknown strategy", strategyName="GUESS")
        yield assignment("queues of an unknown topic", topic="PopNowhere")
        yield assignment("queues of a group without clients", consumerGroup="CG_Nobody")
        yield mode("a mode for a retry topic", topic=f"%RETRY%{GROUP}")
        yield mode("a mode for an unknown topic", topic="PopNowhere")
        yield mode("a mode for an unknown group", consumerGroup="CG_Nobody")
        yield mode("let a group pull again", mode="PULL")
        yield assignment("queues to pull again")
        yield from self._shares()

    def _shares(self) -> Iterator[PopExchange]:
        """Let three clients of a group pop four queues, and those of the next clients."""
        topic, group, names = "PopShared", "CG_PopShared", [f"192.0.2.{n}@pop" for n in range(3)]
        self.make(topic, 0, queues=4)
        assert self.ask("", 200, body=json.dumps({"groupName": group}).encode()).answer().code == 0

        def assignment(name: str, client_id: str) -> PopExchange:
            body = {
                "topic": topic, "consumerGroup": group, "clientId": client_id, "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }  # fmt: skip
            return self.ask(name, 400, body=json.dumps(body).encode())

        with ExitStack() as clients:
            for name in names:
                client = clients.enter_context(_Connection(self._address))
                client.send(34, body=json.dumps(heartbeat(topic, group, name)).encode())
                client.receive()
            deadline = time.monotonic() + RETURN_LIMIT_S
            while b'"queueId":3' not in bytes(assignment("", names[2]).answer().body):
                assert time.monotonic() < deadline, "the route of the topic does not come"
                time.sleep(0.1)
            for share in (1, 2, 9):
                mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": share}
                assert self.ask("", 401, body=json.dumps(mode).encode()).answer().code == 0
                for n, name in enumerate(names):
                    yield assignment(f"queues of client {n} with those of {share} others", name)

    def _priorities(self) -> Iterator[PopExchange]:
        topic, every = "PopPriority", {"queueId": -1}

        def send(number: int, priority: int, properties: str = "") -> None:
            self.send(topic, number, 1, properties=f"{properties}_SYS_MSG_PRIORITY_\x01{priority}\x02")

        self.make(topic, 2, queues=3, attributes="+message.type=PRIORITY")
        for number, priority in enumerate((0, 1, 2, 9, 1), 2):
            send(number, priority)
        send(7, 2, "__SHARDINGKEY\x01g\x02")
        yield self.pop("pop the highest priority", topic, maxMsgNums=1, **every)
        yield self.pop("pop the next priorities", topic, maxMsgNums=3, **every)
        yield self.pop("pop the lowest priority for a second", topic, invisibleTime=1000, **every)
        send(8, 0)
        yield self._pop_returned("pop retries as the lowest priority", topic, 4, **every)
        send(9, 1)
        yield self.pop("pop for a second again", topic, invisibleTime=1000, **every)
        self._set("popFromRetryProbabilityForPriority=100\n")
        send(10, 2)
        yield self._pop_returned("pop retries as the highest priority", topic, 1, **every)
        self._set("useSeparateRetryQueue=true\npriorityOrderAsc=false\n")
        for number, priority in enumerate((2, 1, 0), 11):
            send(number, priority)
        yield self.pop("pop in the other order for a second", topic, invisibleTime=1000, **every)
        yield self._pop_returned("pop retries in queues of their own", topic, 3, **every)
        self._set("popFromRetryProbabilityForPriority=0\nuseSeparateRetryQueue=false\npriorityOrderAsc=true\n")

    def _set(self, settings: str) -> None:
        assert self.ask("", 25, body=settings.encode()).answer().code == 0


def heartbeat(topic: str, group: str, client_id: str) -> dict[str, Any]:
    """Return the body of the heartbeat of a consumer."""
    return {
        "clientID": client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [
                    {"classFilterMode": False, "topic": topic, "subString": "*", "subVersion": 1, "tagsSet": [],
                     "codeSet": [], "expressionType": "TAG"},
                ],
            },
        ],
    }  # fmt: skip


def fields_of(answer: Command) -> dict[str, str]:
    fields: dict[str, str] = answer.header or {}
    return fields


def messages_of(answer: Command) -> list[MessageExt]:
    return list(decode_messages(bytes(answer.body)))


def start_of(answer: Command) -> int:
    """Return the start offset in the answer to a pop of one queue."""
    return int(fields_of(answer)["startOffsetInfo"].split(" ")[2])


def handle_of(answer: Command, offset: int, order: bool = False) -> str:
    """Return the handle of a message of a pop of one queue, as a client makes it."""
    return handle_in(answer, next(each for each in messages_of(answer) if each.queue_offset == offset), order)


def handle_in(answer: Command, message: MessageExt, order: bool = False) -> str:
    """Return the handle of a message of a pop; messages that have returned carry it."""
    if carried := get_property(message.properties_bytes, b"POP_CK"):
        return bytes(carried).decode()
    fields, queue, offset = fields_of(answer), PoppedQueue("0", message.queue_id), message.queue_offset
    start = offset if order else parse_start_offset_info(fields["startOffsetInfo"])[queue]
    times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
    return f"{start} {times} 0 broker-a {message.queue_id} {offset}"


if __name__ == "__main__":
    script = PopScript(sys.argv[1])
    for each in script.run():
        print(
            json.dumps({"name": each.name, "request": each.request.hex(), "response": each.response.hex()}), flush=True
        )
    script.close()
