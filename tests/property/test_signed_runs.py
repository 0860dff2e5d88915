"""Signed requests that come together are served just as if each were alone, and only if their signature covers them."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.request_guard import CheckedCodes, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, UserStatus, UserType
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Columns, Connection, Route, RunHandler
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.hot_responses import success_response
from rocketbroker.codec.remoting.remoting_command import Command, request, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.processor.support.send_runs import SendRuns
from tests.support.fakes import FakeClock
from tests.support.transports import connect, feed

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
    fewest = 7

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.runs: list[int] = []

    def accepts(self, command: Command) -> bool:
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

    def process_one(self, _connection: Connection, command: Command) -> bytes:
        self.requests.append(Request(command.header, bytes(command.body), command.opaque))
        return success_response(command.opaque)


class Server:
    """Guarded routes of sends, whose users and policies are those of ``rules``."""

    def __init__(self, folder: Path) -> None:
        self.handled = Handled()
        self.store = AccessStore(folder / "table", SecretSeal(bytes(32)), FakeClock())
        self.guard = RequestGuard(self.store, RequestRights("C"), FakeClock(), CheckedCodes(authorizes=True))
        self.guard.failed_attempts.failed = lambda address: 0.0  # type: ignore[method-assign]
        self.set_rules(User("joe", SECRET), "T")
        self.routes = self.guard.routes(
            {
                int(code): Route(code, self.handled.process_one, kind, takes_large_bodies=True, runs=self.handled)
                for code, kind in KINDS.items()
            }
        )

    def set_rules(self, user: User, topic: str) -> None:
        allow = PolicyEntry(parse_resource(f"Topic:{topic}"), (Action.PUB,), Decision.ALLOW)
        self.store.rules = AccessRules({user.name: user}, {user.name: Acl(user.name, (allow,))}, self.store.rules)
        self.guard.follow_loaded()

    def exchanged(self, teaching: bytes, events: Sequence[bytes]) -> tuple[list[Request], bytes]:
        """Feed events to a new connection; return what was handled, and the answers."""
        self.handled.requests = []
        connection, transport, _ = connect(self.routes)
        feed(connection, teaching)
        for event in events:
            if not transport.closed:
                feed(connection, event)
        connection.connection_lost(None)
        return self.handled.requests, bytes(transport.written)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def signed(number: int, signer: RequestSigner = JOE, *, code: int = 310, version: int = 513, **fields: str) -> bytes:
    """Return the frame of a signed send; ``fields`` are added to its ``extFields`` or replace some."""
    header = KINDS[code]("PG", "T", "TBW102", 4, number % 4, 0, 1_700_000_000_000 + number, 0, UNIQUE % number)
    command = request(code, {**(to_ext_fields(header) or {}), **fields}, b"body %08d" % number)
    command.opaque, command.version = number, version
    signer.sign(command)
    # Java has all of them in the order of a hash table.
    command.header = dict(sorted(command.header.items(), key=lambda pair: (len(pair[0]), pair[0])))
    return encode_frame(command)


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
async def test_frames_with_any_other_byte_are_served_as_if_alone(server: Server, is_whole: bool):
    teaching = b"".join(signed(number) for number in range(1, 10))
    event = [signed(number) for number in range(100, 100 + EVENT)]
    requests, _ = server.exchanged(teaching, event)
    was_signed = [(found.header, found.body) for found in requests[9:]]
    assert len(was_signed) == EVENT
    served = 0
    for changed in changes(event, None if is_whole else Random(1)):
        requests, answers = server.exchanged(teaching, together(changed))
        assert (requests, answers) == server.exchanged(teaching, changed), changed
        assert all((found.header, found.body) in was_signed for found in requests[9:]), changed
        served += len(requests) - 9
    assert EVENT in server.handled.runs, "a byte that is not signed does not end a run"
    assert served > EVENT


TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('\x00\x01\x02"\\/u0ä€\U0001f600')), max_size=12)
SENDS = st.fixed_dictionaries({}, optional={
    "i": TEXTS, "properties": TEXTS, "topic": st.just("T"), "extra": TEXTS, "SecurityToken": st.just("token"),
    BOUND_SIGNATURE: st.just("AAAA"),
    "_UNIQUE_KEY_QUERY": st.sampled_from(["a", "b"]), "version": st.sampled_from([399, 513]),
})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(fields=SENDS, code=st.sampled_from([10, 310]), known=st.booleans(), one=st.one_of(st.none(), SENDS))
def test_whatever_was_signed_is_served_as_if_alone(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], code: int, known: bool, one: dict[str, Any] | None
):
    teaching = b"".join(signed(number, code=code, **(fields if known else {})) for number in range(1, 10))
    event = [signed(number, code=code, **fields) for number in range(100, 100 + EVENT)]
    if one is not None:
        event[2] = signed(102, code=code, **one)

    async def compare() -> None:
        server = Server(tmp_path_factory.mktemp("table"))
        assert server.exchanged(teaching, together(event)) == server.exchanged(teaching, event)

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
async def test_a_change_counts_from_the_next_run_on(server: Server, user: User, topic: str):
    connection, transport, _ = connect(server.routes)
    for first in (1, 11):
        feed(connection, b"".join(signed(number) for number in range(first, first + 10)))
    assert server.handled.runs[-1] == 10

    server.set_rules(user, topic)
    feed(connection, b"".join(signed(number) for number in range(21, 31)))

    assert len(server.handled.requests) == 20
    assert [answer.code for answer in transport.answers[20:]] == [16] * 10


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
