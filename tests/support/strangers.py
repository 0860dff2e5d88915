"""Strangers: connections from several addresses that send every request code with extreme values, lengths and counts.

The requests are made from the broker's own table of routes, so that a new code takes part by itself.
"""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from rocketbroker.codec.remoting.frame import encode_rocketmq_header
from rocketbroker.codec.remoting.handler import Audience, Route
from rocketbroker.codec.remoting.remoting_command import RemotingCommand
from rocketbroker.common.errors import LocalProtocolError
from tests.support.golden_frames import frames
from tests.support.raw_client import RawClient, raw_frame, raw_header
from tests.support.raw_requests import consumer_data, pull_fields, send_v1_fields

LAWFUL_TOPIC, LAWFUL_GROUP = "Lawful", "CG_Lawful"
_TOPICS = (
    LAWFUL_TOPIC, "BenchmarkTest", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "TBW102",
    "%RETRY%CG_Lawful", "SELF_TEST_TOPIC", "Strange",
)  # fmt: skip
_GROUPS = (LAWFUL_GROUP, "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "CG_Strange", "PG_Strange")
_NUMBERS = (0, -1, 1, 2, 31, 32, 2**15, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63, 10**30)
_ESCAPES = "\x1b[2J\x9b\x00\u202e\ud7ff\U0001f600"
_MOST_PIPELINED = 200
_MOST_TEXT = 200_000
_MOST_CONNECTIONS = 5
# As often as the clients of RocketMQ do.
_HEARTBEAT_S = 30.0
# A broker that reads no further is left.
_SEND_LIMIT_S = 0.2


def _weight(route: Route) -> int:
    """Return how often a code is sent: bodies leave more behind, and a mere client is kept from other codes."""
    return 1 if route.audience is not Audience.CLIENT else 8 if route.header_type is not None else 24


class Extremes:
    """Requests of all codes: mostly plausible, so that they reach the processors, with some extreme values.

    Args:
        routes: the routes of the broker.
        seed: of the random choices.
    """

    def __init__(self, routes: Mapping[int, Route], seed: int) -> None:
        self._chance = random.Random(seed)
        self._codes = [code for code, route in routes.items() for _ in range(_weight(route))]
        self._routes = routes
        self._recorded: dict[int, list[bytes]] = {}
        for frame in frames():
            if not frame.flag & 1 and frame.code in routes and (body := frame.body()):
                self._recorded.setdefault(frame.code, []).append(body)

    def __iter__(self) -> Iterator[bytes]:
        """Yield what is sent at once: a request, or the same one many times."""
        while True:
            code = self._chance.choice(self._codes)
            data = self._request(code)
            many = self._chance.randrange(8) == 0 and len(data) < 5_000
            yield data * self._chance.randint(2, _MOST_PIPELINED) if many else data

    def _request(self, code: int) -> bytes:
        chance = self._chance
        kind = self._routes[code].header_type
        fields = {} if kind is None else {each.encode_name: self._value(each) for each in msgspec.structs.fields(kind)}
        fields = {name: value for name, value in fields.items() if value is not None}
        if chance.randrange(40) == 0:
            fields |= {f"x{number}": "y" * 50 for number in range(chance.choice((10, 900, 2_000)))}
        language = "x" * _MOST_TEXT if chance.randrange(30) == 0 else "JAVA"
        flag = 2 * (chance.randrange(6) == 0)
        body = self._body(code)
        if chance.randrange(6) == 0:
            texts = {name: value if isinstance(value, str) else str(value) for name, value in fields.items()}
            command = RemotingCommand(code, texts, flag, language, 7)
            try:
                header = encode_rocketmq_header(command)
            except (LocalProtocolError, UnicodeEncodeError):
                return b""
            return raw_frame(header, body, mark=1 << 24 | len(header)) if len(header) < 1 << 24 else b""
        return raw_frame(raw_header(code, fields, 7, flag=flag) | {"language": language}, body)

    def _value(self, field: msgspec.structs.FieldInfo) -> Any:
        chance, name = self._chance, field.name
        is_extreme = chance.randrange(5) == 0
        if not is_extreme and not field.required and chance.randrange(3):
            return None
        text = str(field.type)
        if "int" in text:
            return self._number(name, is_extreme)
        if "bool" in text:
            return chance.choice(("true", "false", "1", "0", "maybe") if is_extreme else ("true", "false"))
        return self._extreme_text() if is_extreme else self._text(name)

    def _number(self, name: str, is_extreme: bool) -> Any:
        chance = self._chance
        if is_extreme:
            number = chance.choice((*_NUMBERS, chance.getrandbits(62)))
            return chance.choice((str(number), number, f"{number}.0", "", "1e9", None))
        if "offset" in name:
            return str(chance.randrange(1_000))
        if "timestamp" in name or "time" in name:
            return str(int(time.time() * 1000) + chance.randint(-100_000, 100_000))
        if name == "sys_flag":
            return str(chance.randrange(64))
        return str(chance.choice((0, 0, 1, 2, 3, 4, 16, 32)))

    def _text(self, name: str) -> str:
        chance = self._chance
        if "topic" in name:
            return (
                "TBW102" if name == "default_topic" else chance.choice((*_TOPICS, f"Strange{chance.randrange(5_000)}"))
            )
        if "group" in name:
            return chance.choice((*_GROUPS, f"CG_Strange{chance.randrange(5_000)}"))
        if name == "properties":
            return (
                "TAGS\x01A\x02KEYS\x01" + " ".join(f"k{key}" for key in range(chance.choice((1, 100, 1_000)))) + "\x02"
            )
        if "subscription" in name:
            return chance.choice(
                ("*", "Nothing", "A||B", "||".join(map(str, range(1_000))), "a > 1 OR " * 500 + "b = 2")
            )
        return chance.choice(("*", "TAG", "SQL92", "0A0000010000276D0000000000000000", "client@1"))

    def _extreme_text(self) -> str:
        chance = self._chance
        return chance.choice(
            (
                "", " ", "a" * 300, "a" * _MOST_TEXT, "../../x", _ESCAPES, "%RETRY%" * 30, "a||" * 20_000, "@",
                "\x01\x02", f"rmq_sys_{chance.randrange(5_000)}",
            )
        )  # fmt: skip

    def _body(self, code: int) -> bytes:
        chance = self._chance
        what = chance.randrange(12)
        if what < 4 and code in self._recorded:
            return chance.choice(self._recorded[code])
        if what < 9:
            return json.dumps(self._json(code)).encode()
        return chance.choice(
            (
                b"", b"\x00" * (1 << 20), b"[" * 100_000, b'{"a":' * 20_000, chance.randbytes(5_000),
                b"{" + b",".join(b"k%d:'%d'" % (each, each) for each in range(5_000)) + b"}",
                b"\x7f\xff\xff\xff" * 1_000, b'{"clientID":' + b"9" * 100_000 + b"}",
            )
        )  # fmt: skip

    def _json(self, code: int) -> Any:
        """A body that one of the codes with many entries understands."""
        chance = self._chance
        count = chance.choice((1, 1, 10, 300, 3_000))
        client = chance.choice(("stranger", "s" * 1_000, _ESCAPES, f"c{chance.randrange(100_000)}"))
        if code in (41, 42):
            queues = [
                {"topic": chance.choice(_TOPICS), "brokerName": "broker-a", "queueId": each} for each in range(count)
            ]
            return {"consumerGroup": self._text("group"), "clientId": client, "mqSet": queues}
        count = min(count, 300)
        topics = [self._text("topic") for _ in range(count)]
        subscriptions = [
            {
                "topic": topic,
                "subString": self._text("subscription"),
                "expressionType": chance.choice(("TAG", "SQL92", "x" * 9_000)),
                "tagsSet": ["t" * chance.choice((1, 100))] * chance.choice((0, 1, 100)),
                "codeSet": list(range(chance.choice((0, 100)))),
            }
            for topic in topics[: chance.choice((1, 5, 40))]
        ]
        # Any client may join any group, and commits as a member then: the lawful client keeps its group to itself.
        group = chance.choice((*_GROUPS[1:], f"CG_Strange{chance.randrange(5_000)}"))
        return {
            "clientID": client,
            "consumerDataSet": [consumer_data(group) | {"subscriptionDataSet": subscriptions}],
            "producerDataSet": [{"groupName": self._text("group")} for _ in range(count)],
            "heartbeatFingerprint": chance.choice(_NUMBERS[:9]),
        }


def connect_from(host: str, address: str) -> socket.socket:
    """Connect from one of the loopback addresses."""
    to, _, port = address.rpartition(":")
    return socket.create_connection((to, int(port)), timeout=20, source_address=(host, 0))


class Stranger(threading.Thread):
    """Sends what a generator makes, over connections that it opens and leaves, and takes some of the answers.

    Args:
        host: its address.
        address: of the broker.
        pieces: what to send.
        count: number of pieces; without one it sends until ``ends_at``.
        ends_at: time of the monotonic clock at which it stops.
    """

    def __init__(self, host: str, address: str, pieces: Extremes, count: int, ends_at: float) -> None:
        super().__init__(name=f"stranger {host}")
        self._host, self._address, self._pieces = host, address, pieces
        self._count, self._ends_at = count, ends_at
        self._chance = random.Random(host)
        self.sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Send all, then close all connections."""
        connections: list[socket.socket] = []
        try:
            for data in self._pieces:
                if self.sent >= self._count or time.monotonic() >= self._ends_at:
                    return
                self.sent += 1
                if not connections or (len(connections) < _MOST_CONNECTIONS and self._chance.randrange(10) == 0):
                    connections.append(self._connect())
                self._send(connections, data)
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error
        finally:
            for each in connections:
                each.close()

    def _connect(self) -> socket.socket:
        return connect_from(self._host, self._address)

    def _send(self, connections: list[socket.socket], data: bytes) -> None:
        """Send over one connection; replace it when the broker closes it or reads no further."""
        at = self._chance.randrange(len(connections))
        try:
            connections[at].settimeout(_SEND_LIMIT_S)
            connections[at].sendall(data)
            if self._chance.randrange(4):
                connections[at].settimeout(0)
                while connections[at].recv(1 << 20):
                    pass
                connections.pop(at).close()
        except BlockingIOError:
            pass  # all that has come is read
        except (TimeoutError, ConnectionError):
            connections.pop(at).close()


class Service(NamedTuple):
    """Service of a lawful client: messages that it sent, got back and committed, and the longest time of one."""

    messages: int
    longest_s: float


class Lawful:
    """A client that sends a message, pulls it and commits it, again and again, on a thread.

    Args:
        host: its address.
        address: of the broker.
    """

    def __init__(self, host: str, address: str) -> None:
        self._connect = lambda: RawClient(connect_from(host, address))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lawful client")
        self._error: BaseException | None = None
        self._messages, self._longest = 0, 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def served(self) -> Service:
        """Stop, and return the service.

        Raises:
            BaseException: what it was refused.
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return Service(self._messages, self._longest)

    def _run(self) -> None:
        try:
            with self._connect() as client:
                joined = float("-inf")
                while not self._stop.is_set():
                    began = time.monotonic()
                    if began > joined + _HEARTBEAT_S:
                        joined = began
                        join(client, LAWFUL_GROUP, LAWFUL_TOPIC)
                    exchange(client, LAWFUL_GROUP, LAWFUL_TOPIC)
                    self._messages += 1
                    self._longest = max(self._longest, time.monotonic() - began)
                    self._stop.wait(0.02)
        except BaseException as error:  # noqa: BLE001 - raised by ``served``
            self._error = error


def _succeed(client: RawClient, code: int, fields: dict[str, Any], body: bytes = b"") -> Any:
    answer = client.ask(code, fields, body)
    assert answer.code == 0, (code, fields, answer.header)
    return answer


def join(client: RawClient, group: str, topic: str) -> None:
    """Send the heartbeat of a consumer."""
    data = consumer_data(group) | {"subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}]}
    body = json.dumps({"clientID": f"lawful@{group}", "producerDataSet": [], "consumerDataSet": [data]}).encode()
    _succeed(client, 34, {}, body)


def exchange(client: RawClient, group: str, topic: str) -> None:
    """Send one message, pull it, and commit it."""
    body = f"{time.monotonic()}".encode()
    sent = _succeed(client, 10, send_v1_fields(topic), body)
    offset = int(sent.fields["queueOffset"])
    got = _succeed(client, 11, pull_fields(topic, offset, consumerGroup=group))
    assert body in got.body
    commit = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset + 1)}
    _succeed(client, 15, commit)
    found = _succeed(client, 14, {name: commit[name] for name in ("consumerGroup", "topic", "queueId")})
    assert int(found.fields["offset"]) == offset + 1


def fill(client: RawClient, topic: str, count: int) -> None:
    """Send many messages one-way, so that pulls have a long queue to look through."""
    frame = raw_frame(raw_header(10, send_v1_fields(topic), flag=2), b"filling")
    for _ in range(0, count, _MOST_PIPELINED):
        client.send(frame * _MOST_PIPELINED)


def run_strangers(
    routes: Mapping[int, Route], address: str, hosts: Sequence[str], seed: int, count: int, seconds: float
) -> int:
    """Let strangers at these addresses send; return the number of pieces."""
    ends_at = time.monotonic() + seconds
    strangers = [
        Stranger(host, address, Extremes(routes, seed + number), count, ends_at) for number, host in enumerate(hosts)
    ]
    for each in strangers:
        each.start()
    for each in strangers:
        each.join()
    for each in strangers:
        if each.error is not None:
            raise each.error
    return sum(each.sent for each in strangers)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait for a condition; return false if it does not come true in time."""
    ends_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.05)
    return True
