"""Signed requests that fit a template are served just as without one, and only if their signature covers them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.signed_runs import _decoded
from rocketbroker.auth.users import User, UserStatus, UserType
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import HELD, Answer, Columns, Connection, InTurn, Route, RunHandler
from rocketbroker.codec.remoting.header_template import decode_text
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, request, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.send_runs import SendRuns
from rocketbroker.transport.connection import RemotingConnection
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.transports import connect, feed
from tests.support.waiting import until

SECRET = "joe-secret"
JOE = RequestSigner("joe", SECRET)
UNIQUE = "UNIQ_KEY\x017F00000112671B28CDFA0000%08X\x02WAIT\x01true\x02TAGS\x01T"
# What ends or escapes a text, digits, letters of names and of base64, and bytes that are no UTF-8.
OTHER_BYTES = b'"\\,:{}\x00\x01 019AKUTbeu=/+\x7f\xc3\xff'
EVENT = 4


KINDS: dict[int, type[Any]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
}


class Request(NamedTuple):
    """A request that was handled: its typed header, its body and its opaque."""

    header: Any
    body: bytes
    opaque: int


class Handled(RunHandler):
    """Handler that notes what it is given; ``runs`` has the length of each run."""

    fields = SendRuns.fields
    fewest = 3

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.runs: list[int] = []
        self.accepted = 0
        # Wraps the answers to requests that come alone.
        self.wrap: Callable[[Command], Answer] | None = None

    def accepts(self, command: Command) -> bool:
        self.accepted += 1
        return not command.flag

    def process(
        self, connection: Connection, command: Command, columns: Columns, bodies: Sequence[memoryview]
    ) -> bytes | None:
        try:
            texts = [msgspec.json.decode(b'"%b"' % text, type=str) for text in columns[2]]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        self.runs.append(len(bodies))
        for queue_id, born, text, opaque, body in zip(*columns[:2], texts, columns[3], bodies, strict=True):
            header = msgspec.structs.replace(
                command.header, queue_id=int(queue_id), born_timestamp=int(born), properties=text
            )
            self.requests.append(Request(header, bytes(body), int(opaque)))
        return b"".join(success_response(int(opaque)) for opaque in columns[3])

    def process_one(self, _connection: Connection, command: Command) -> Answer:
        self.requests.append(Request(command.header, bytes(command.body), command.opaque))
        return self.wrap(command) if self.wrap is not None else success_response(command.opaque)


class Server:
    """Guarded routes of sends, whose users and policies are those of ``rules``."""

    def __init__(self, folder: Path) -> None:
        self.handled = Handled()
        self.store = AccessStore(folder / "table", SecretSeal(bytes(32)), FakeClock())
        self.guard = RequestGuard(self.store, RequestRights("C"), FakeClock(), Checks(authorizes=True))
        self.guard.refusals.failed_attempts.failed = lambda address: 0.0  # type: ignore[method-assign]
        self.set_rules(User("joe", SECRET), "T")
        self.routes = self._routes(self.handled)
        self.plain_routes = self._routes(None)

    def _routes(self, runs: Handled | None) -> dict[int, Route]:
        handle = self.handled.process_one
        return self.guard.routes(
            {int(code): Route(code, handle, kind, takes_large_bodies=True, runs=runs) for code, kind in KINDS.items()}
        )

    def set_rules(self, user: User, topic: str) -> None:
        allow = PolicyEntry(parse_resource(f"Topic:{topic}"), (Action.PUB,), Decision.ALLOW)
        self.store.rules = AccessRules({user.name: user}, {user.name: Acl(user.name, (allow,))}, self.store.rules)
        self.guard.follow_loaded()

    def exchanged(
        self, teaching: bytes, events: Sequence[bytes], *, plain: bool = False
    ) -> tuple[list[Request], bytes]:
        """Feed events to a new connection; return what was handled, and the answers."""
        self.handled.requests = []
        connection, transport, _ = connect(self.plain_routes if plain else self.routes)
        feed(connection, teaching)
        for event in events:
            if not transport.closed:
                feed(connection, event)
        connection.connection_lost(None)
        return self.handled.requests, bytes(transport.written)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def signed(
    number: int, signer: RequestSigner = JOE, *, code: int = 310, version: int = 513, flag: int = 0, **fields: str
) -> bytes:
    """Return the frame of a signed send; ``fields`` are added to its ``extFields`` or replace some."""
    header = KINDS[code]("PG", "T", "TBW102", 4, number % 4, 0, 1_700_000_000_000 + number, 0, UNIQUE % number)
    command = request(code, {**(to_ext_fields(header) or {}), **fields}, b"body %08d" % number)
    command.opaque, command.version, command.flag = number, version, flag
    signer.sign(command)
    # Java has all of them in the order of a hash table.
    command.header = dict(sorted(command.header.items(), key=lambda pair: (len(pair[0]), pair[0])))
    return encode_frame(command)


def feed_each(connection: RemotingConnection, frames: Iterable[bytes]) -> None:
    """Hand over frames, each by a read event of its own."""
    for frame in frames:
        feed(connection, frame)


def together(frames: Sequence[bytes]) -> list[bytes]:
    return [b"".join(frames)]


def changes(event: Sequence[bytes], random: Random | None) -> Iterator[list[bytes]]:
    """Yield the frames with another byte at each place of one of them: each of some, or one by chance."""
    for at in range(len(event[0])):
        for byte in OTHER_BYTES if random is None else [random.choice(OTHER_BYTES)]:
            changed = list(event)
            place = at % len(event)
            changed[place] = event[place][:at] + bytes([byte]) + event[place][at + 1 :]
            yield changed


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["some", "all"])
async def test_frames_with_any_other_byte_are_served_as_without_templates(server: Server, is_whole: bool):
    teaching = b"".join(signed(number) for number in range(1, 10))
    event = [signed(number) for number in range(100, 100 + EVENT)]
    requests, _ = server.exchanged(teaching, event)
    was_signed = [(found.header, found.body) for found in requests[9:]]
    assert len(was_signed) == EVENT
    served = 0
    for changed in changes(event, None if is_whole else Random(1)):
        requests, answers = server.exchanged(teaching, changed, plain=True)
        assert (requests, answers) == server.exchanged(teaching, together(changed)), changed
        assert (requests, answers) == server.exchanged(teaching, changed), changed
        assert all((found.header, found.body) in was_signed for found in requests[9:]), changed
        served += len(requests) - 9
    assert EVENT in server.handled.runs, "a byte that is not signed does not end a run"
    assert served > EVENT


@pytest.mark.parametrize("ended", [(0,), (1, 2), (0, 3), (0, 1, 2, 3)])
async def test_a_text_that_ends_in_half_an_escape_is_served_as_without_templates(
    server: Server, ended: tuple[int, ...]
):
    teaching = b"".join(signed(number) for number in range(1, 10))
    event = [signed(number) for number in range(100, 100 + EVENT)]
    for at in ended:
        event[at] = event[at].replace(rb'TAGS\u0001T"', rb"TAGS\u0001\"")
    requests, answers = server.exchanged(teaching, event, plain=True)

    assert (requests, answers) == server.exchanged(teaching, together(event))
    assert (requests, answers) == server.exchanged(teaching, event)


# What begins, ends and separates the items of an array, escapes, and bytes that are no UTF-8 or no text.
PIECES = [
    rb"\u0001",
    b"u0001",
    rb"\ud83d",
    rb"\ude00",
    rb"\u0000",
    *(bytes([each]) for each in b"\\\\,[]{}: 0n\n\xc3\xa4"),
]


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map(b"".join), min_size=1, max_size=4))
def test_texts_decoded_together_are_those_decoded_alone(texts: list[bytes]):
    try:
        alone = [decode_text(text).encode() for text in texts]
    except (msgspec.MsgspecError, UnicodeError):
        with pytest.raises((msgspec.MsgspecError, UnicodeError)):
            _decoded(texts)
    else:
        assert _decoded(texts) == alone


TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('\x00\x01\x02"\\/u0ä€\U0001f600')), max_size=12)
SENDS = st.fixed_dictionaries({}, optional={
    "i": TEXTS, "properties": TEXTS, "topic": st.just("T"), "extra": TEXTS, "SecurityToken": st.just("token"),
    BOUND_SIGNATURE: st.just("AAAA"),
    "_UNIQUE_KEY_QUERY": st.sampled_from(["a", "b"]), "version": st.sampled_from([399, 513]),
})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(fields=SENDS, code=st.sampled_from([10, 310]), known=st.booleans(), one=st.one_of(st.none(), SENDS))
def test_whatever_was_signed_is_served_as_without_templates(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], code: int, known: bool, one: dict[str, Any] | None
):
    teaching = b"".join(signed(number, code=code, **(fields if known else {})) for number in range(1, 10))
    event = [signed(number, code=code, **fields) for number in range(100, 100 + EVENT)]
    if one is not None:
        event[2] = signed(102, code=code, **one)

    async def compare() -> None:
        server = Server(tmp_path_factory.mktemp("table"))
        plain = server.exchanged(teaching, event, plain=True)
        assert plain == server.exchanged(teaching, together(event))
        assert plain == server.exchanged(teaching, event)

    asyncio.run(compare())


@pytest.mark.parametrize("code", KINDS)
async def test_a_run_is_checked_as_one(server: Server, code: int):
    teaching = b"".join(signed(number, code=code) for number in range(1, 10))

    requests, _ = server.exchanged(teaching, together([signed(number, code=code) for number in range(100, 120)]))

    assert server.handled.runs == [5, 20], "the rest of those that teach, and a run"
    assert len(requests) == 29


@pytest.mark.parametrize(
    ("signer", "fields"),
    [
        (RequestSigner("joe", "another"), {}),
        (RequestSigner("ann", SECRET), {}),
        (JOE, {"b": "Other"}),
    ],
    ids=["wrong secret", "unknown user", "no right"],
)
async def test_a_run_that_may_not_be_served_is_refused_one_by_one(server: Server, signer: RequestSigner, fields: Any):
    event = [signed(number, signer, **fields) for number in range(1, 30)]

    requests, answers = server.exchanged(b"", together(event))

    assert (requests, server.handled.runs) == ([], [])
    assert answers.count(b'"code":16,') == 29


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        (User("joe", "another"), "T"),
        (User("joe", SECRET, status=UserStatus.DISABLE), "T"),
        (User("ann", SECRET), "T"),
        (User("joe", SECRET), "Other"),
        (User("joe", "another", UserType.SUPER), "T"),
    ],
    ids=["secret", "disabled", "deleted", "policy", "super"],
)
@pytest.mark.parametrize("count", [1, 10], ids=["alone", "run"])
async def test_a_change_counts_from_the_next_request_on(server: Server, user: User, topic: str, count: int):
    connection, transport, _ = connect(server.routes)
    for first in (1, 11, 21):
        feed(connection, b"".join(signed(number) for number in range(first, first + (count if first > 20 else 10))))
    assert server.handled.runs[-1] == 10

    server.set_rules(user, topic)
    feed(connection, b"".join(signed(number) for number in range(41, 41 + count)))

    assert len(server.handled.requests) == 20 + count
    assert [answer.code for answer in transport.answers[20 + count :]] == [16] * count


async def test_requests_that_always_come_alone_learn_a_template(server: Server, monkeypatch: pytest.MonkeyPatch):
    check = Mock(wraps=server.guard.check)
    monkeypatch.setattr(server.guard, "check", check)

    requests, _ = server.exchanged(b"", [signed(number) for number in range(1, 20)])

    assert (len(requests), check.call_count, server.handled.runs) == (19, 4, [])


async def test_a_lone_request_that_waits_is_asked_again_before_it_is_served(server: Server):
    held: list[Command] = []
    connection, *_ = connect(server.routes)
    feed_each(connection, [signed(number) for number in range(1, 10)])

    def hold(command: Command) -> Answer:
        held.append(command)
        return HELD

    server.handled.wrap = hold
    feed(connection, signed(10))
    held[0].grant()

    server.set_rules(User("joe", SECRET), "Other")

    with pytest.raises(BrokerResponseError, match="joe") as refused:
        held[0].grant()
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert server.guard.refusals.denied == 1


async def test_a_lone_request_whose_turn_comes_after_its_right_is_gone_is_refused(server: Server):
    async def answer(command: Command) -> bytes:
        raise AssertionError("work of a user without the right")

    connection, transport, _ = connect(server.routes)
    feed_each(connection, [signed(number) for number in range(1, 10)])
    server.handled.wrap = lambda command: InTurn(answer(command))

    feed(connection, signed(10))
    server.set_rules(User("joe", SECRET), "Other")
    await until(lambda: len(transport.answers) == 10)

    assert transport.answers[-1].code == ResponseCode.NO_PERMISSION


async def test_a_request_that_fits_and_is_refused_teaches_nothing(server: Server, monkeypatch: pytest.MonkeyPatch):
    learn = Mock(wraps=server.routes[310].runs)
    monkeypatch.setattr(server.routes[310], "runs", learn)
    learn.learns_alone, learn.fewest = True, 3
    wrong = RequestSigner("joe", "another")

    _, answers = server.exchanged(b"", [signed(number, wrong) for number in range(1, 40)])

    assert learn.learn.call_count == 1
    assert answers.count(b'"code":16,') == 39


async def test_one_way_requests_are_never_decoded_twice(server: Server):
    server.exchanged(b"", [signed(number, flag=FLAG_ONEWAY) for number in range(1, 40)])

    assert len(server.handled.requests) == 39
    assert server.handled.accepted == 0


async def test_no_decision_holds_for_another_address(server: Server):
    allow = PolicyEntry(parse_resource("Topic:T"), (Action.PUB,), Decision.ALLOW, ("127.0.0.1",))
    server.store.rules = AccessRules({"joe": User("joe", SECRET)}, {"joe": Acl("joe", (allow,))}, server.store.rules)
    frame = signed(1)
    header = memoryview(frame)[8 : 8 + int.from_bytes(frame[5:8])]
    route = server.routes[310]
    assert route.runs is not None
    kind = route.runs.learn(bytes(header), route.decode_json(header), route.decode_json)
    assert kind is not None
    assert kind.shortcut is not None
    match = kind.template.fullmatch(memoryview(header), 0, len(header))
    assert match is not None

    allowed, refused = (
        kind.shortcut.decode(FakeConnection(address), match.groups(), memoryview(frame)[8 + len(header) :])
        for address in ("127.0.0.1:1", "127.0.0.2:1")
    )

    assert allowed is not None
    assert refused is None


async def test_a_super_user_needs_no_policy(server: Server):
    server.set_rules(User("joe", SECRET, UserType.SUPER), "Other")

    requests, _ = server.exchanged(b"", together([signed(number) for number in range(1, 30)]))

    assert (len(requests), server.handled.runs[-1] > 9) == (29, True)


async def test_a_text_that_decodes_to_another_than_was_signed_is_refused(server: Server):
    teaching = b"".join(signed(number) for number in range(1, 10))
    event = [signed(number, i="n\x01\\\x01") for number in range(100, 120)]
    # A backslash and a separator become an escaped backslash, and letters.
    forged = [frame.replace(rb"\\\u0001", rb"\\u0001") for frame in event]
    forged = [
        (len(frame) - 4).to_bytes(4) + (int.from_bytes(frame[4:8]) - 1).to_bytes(4) + frame[8:] for frame in forged
    ]

    requests, answers = server.exchanged(teaching, together(forged))

    assert len(requests) == 9
    assert answers.count(b'"code":16,') == 20


async def test_one_wrong_signature_among_others_is_refused_alone(server: Server):
    teaching = b"".join(signed(number) for number in range(1, 10))
    event = [signed(number) for number in range(100, 120)]
    event[7] = signed(107, RequestSigner("joe", "another"))

    requests, _ = server.exchanged(teaching, together(event))

    assert [found.opaque for found in requests[9:]] == [100 + at for at in range(20) if at != 7]
