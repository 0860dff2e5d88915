"""The guard of routes: who is refused before the handler, with what, and when."""

import asyncio
import gc
import hmac
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.auth import failed_attempts
from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.late_refusals import MAX_OF_ADDRESS
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.requester import Requester
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.signed_runs import SignedRuns
from rocketbroker.auth.users import User, UserType
from rocketbroker.codec.remoting.bodies.client import HeartbeatData
from rocketbroker.codec.remoting.bound_signature import NONCE_CODE, BoundSigner
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Answer, Audience, Connection, InTurn, MethodTable, RunHandler
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, RemotingCommand, request, response
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.transports import connect, feed
from tests.support.waiting import turns, until

ROOT = RequestSigner("root", "root-secret")
JOE = RequestSigner("joe", "joe-secret")
PULL = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}


class Runs(RunHandler):
    """Handler of runs, which gets those that are checked."""

    fields = ()
    fewest = 7

    def accepts(self, command: Command) -> bool:
        return True

    def process(self, *_: object) -> None:
        raise AssertionError("not called here")


class Server:
    """Routes that note which requests reached their handlers."""

    def __init__(self, tmp_path: Path, codes: Checks) -> None:
        self.store = AccessStore(tmp_path / "table", SecretSeal(bytes(32)), FakeClock())
        allow = PolicyEntry(parse_resource("Topic:T"), (Action.SUB,), Decision.ALLOW)
        group = PolicyEntry(parse_resource("Group:CG"), (Action.SUB,), Decision.ALLOW, ("127.0.0.1",))
        users = [User("root", "root-secret", UserType.SUPER), User("joe", "joe-secret")]
        self.store.rules = AccessRules({user.name: user for user in users}, {"joe": Acl("joe", (allow, group))})
        self.clock = FakeClock()
        self.guard = RequestGuard(self.store, RequestRights("C"), self.clock, codes)
        self.guard.follow_loaded()
        self.reached: list[object] = []
        # Groups that a client is in by earlier heartbeats.
        self.older: list[str] = []
        table = MethodTable()
        table.add(Code.PULL_MESSAGE, self._handle, PullMessageRequestHeader, Audience.CLIENT, takes_large_bodies=True)
        sent = SendMessageRequestHeaderV2
        table.add(Code.SEND_MESSAGE_V2, self._handle, sent, Audience.CLIENT, takes_large_bodies=True, runs=Runs())
        table.add(Code.GET_BROKER_CONFIG, self._handle)
        table.add(Code.UPDATE_BROKER_CONFIG, self._handle_later, asks=True)
        table.add(Code.HEART_BEAT, self._handle_for, asks=True)
        table.add(Code.UNREGISTER_CLIENT, self._handle)
        table.add(Code.PEEK_MESSAGE, lambda *_: InTurn(self._finish()), None, Audience.CLIENT)
        self.own = table.routes
        self.routes = self.guard.routes(table.routes)

    def _handle(self, _connection: Connection, command: Command) -> Answer:
        self.reached.append(command.header)
        return b"answer"

    def _handle_for(self, _connection: Connection, command: Command, requester: Requester) -> Answer:
        self.reached.append(requester)
        heartbeat = HeartbeatData.decode(command.body)
        if heartbeat.client_id == "refused":
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, "too long")
        groups = [consumer.group_name for consumer in heartbeat.consumer_data_set]
        requester.joined(heartbeat, heartbeat.consumer_data_set, [*self.older, *groups])
        return b"answer"

    async def _handle_later(self, _connection: Connection, command: Command, requester: Requester) -> Command:
        self.reached.append(requester.is_super)
        return response()

    async def _finish(self) -> Command:
        self.reached.append("peeked")
        return response()

    def ask(
        self,
        code: Code,
        signer: RequestSigner | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        address: str = "127.0.0.1:5",
        flag: int = 0,
        connection: FakeConnection | None = None,
    ) -> Answer:
        command = request(code, fields, body)
        if signer is not None:
            signer.sign(command)
        command.flag |= flag
        return self.routes[code].process(connection or FakeConnection(address), command)

    def refusal(self, code: Code, signer: RequestSigner | None = None, **more: object) -> str:
        with pytest.raises(BrokerResponseError) as caught:
            self.ask(code, signer, **more)  # type: ignore[arg-type]
        assert caught.value.code == ResponseCode.NO_PERMISSION
        assert self.reached == []
        return caught.value.remark


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path, Checks(authorizes=True, lifts_protected_mode=True))


def test_the_rights_are_those_of_the_route_whatever_code_the_request_has(server: Server):
    command = request(Code.UNREGISTER_CLIENT)
    RequestSigner("joe", "joe-secret").sign(command)
    with pytest.raises(BrokerResponseError, match="User:joe has no permission to access Cluster:C"):
        server.routes[Code.GET_BROKER_CONFIG].process(FakeConnection("127.0.0.1:5"), command)
    assert server.reached == []


def test_a_request_without_credentials_or_with_wrong_ones_reaches_no_handler(server: Server):
    assert "username cannot be null" in server.refusal(Code.PULL_MESSAGE, fields=PULL)
    assert "check signature failed" in server.refusal(Code.PULL_MESSAGE, RequestSigner("joe", "other"), fields=PULL)
    assert server.guard.refusals.failed_attempts.failures == 2
    assert server.guard.refusals.denied == 0


def test_wrong_credentials_make_a_connection_fail_and_missing_rights_do_not(server: Server):
    connection = FakeConnection("10.0.0.1:99")
    server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL, connection=connection)
    assert connection.failures == 0
    server.refusal(Code.PULL_MESSAGE, fields=PULL, connection=connection)
    assert connection.failures == 1


def test_a_user_with_the_rights_reaches_the_handler_with_a_typed_header(server: Server):
    assert server.ask(Code.PULL_MESSAGE, JOE, PULL) == b"answer"
    (header,) = server.reached
    assert isinstance(header, PullMessageRequestHeader)
    assert header.topic == "T"


def test_a_right_counts_for_its_resource_and_address_alone(server: Server):
    assert "Topic:Other" in server.refusal(Code.PULL_MESSAGE, JOE, fields={**PULL, "topic": "Other"})
    assert "Group:CG from 10.0.0.1" in server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL, address="10.0.0.1:99")
    assert server.guard.refusals.denied == 2
    assert server.guard.refusals.failed_attempts.failures == 0


def test_a_super_user_reaches_all(server: Server):
    assert server.ask(Code.GET_BROKER_CONFIG, ROOT) == b"answer"
    server.reached.clear()
    assert "Cluster:C" in server.refusal(Code.GET_BROKER_CONFIG, JOE)


async def test_a_handler_that_waits_is_refused_before_it_begins(server: Server):
    assert "Update" in server.refusal(Code.UPDATE_BROKER_CONFIG, JOE)
    answer = server.ask(Code.UPDATE_BROKER_CONFIG, ROOT)
    assert inspect.isawaitable(answer)
    done = await answer
    assert isinstance(done, RemotingCommand)
    assert done.code == ResponseCode.SUCCESS
    assert server.routes[Code.UPDATE_BROKER_CONFIG].runs_later


def test_requests_that_come_together_have_no_way_around(server: Server):
    assert isinstance(server.routes[Code.SEND_MESSAGE_V2].runs, SignedRuns)
    assert server.routes[Code.PULL_MESSAGE].runs is None


def test_a_guarded_route_keeps_what_it_may_take(server: Server):
    assert server.routes[Code.PULL_MESSAGE].takes_large_bodies
    assert not server.routes[Code.GET_BROKER_CONFIG].takes_large_bodies


def test_a_header_with_a_wrong_field_is_named_after_the_check(server: Server):
    wrong = {**PULL, "queueId": "many"}
    assert "username" in server.refusal(Code.PULL_MESSAGE, fields=wrong)
    with pytest.raises(BrokerResponseError, match="queueId") as caught:
        server.ask(Code.PULL_MESSAGE, JOE, wrong)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_a_body_that_names_nothing_is_refused(server: Server):
    with pytest.raises(BrokerResponseError) as caught:
        server.ask(Code.HEART_BEAT, JOE, {}, b"{no json")
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert caught.value.remark.startswith("the body of the request: JSON at character")
    assert server.reached == []


def test_a_body_that_is_read_for_its_rights_is_handed_on(server: Server):
    server.ask(Code.HEART_BEAT, JOE, {}, b'{"clientID":"c"}')
    server.ask(Code.HEART_BEAT, ROOT, {}, b'{"clientID":"c"}')
    bodies = [asked.take_body() for asked in server.reached if isinstance(asked, Requester)]
    assert bodies == [HeartbeatData("c"), None]


def test_a_body_that_its_handler_would_reject_by_its_length_is_not_read_for_its_rights(server: Server):
    def check_length(_body: object) -> None:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, "too long")

    server.routes = server.guard.routes(server.own, {Code.HEART_BEAT: check_length})
    with pytest.raises(BrokerResponseError, match="too long"):
        server.ask(Code.HEART_BEAT, JOE, {}, b"{no json")
    # Strangers learn no limit.
    server.refusal(Code.HEART_BEAT, None, fields={}, body=b"{no json")


def test_a_handler_that_finds_messages_may_ask_about_their_topics(server: Server):
    server.ask(Code.HEART_BEAT, JOE, {}, b'{"clientID":"c"}')
    (asked,) = server.reached
    assert isinstance(asked, Requester)
    assert (asked.username, asked.is_limited) == ("joe", True)
    with pytest.raises(BrokerResponseError) as caught:
        asked.check("what was found", ["Other"], (Action.SUB,))
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert server.guard.refusals.denied == 1
    asked.check("what was found", ["T"], (Action.SUB,))
    assert server.guard.refusals.denied == 1


@pytest.mark.parametrize("codes", [Checks(), Checks(authorizes=True, every_user={Code.HEART_BEAT})])
def test_where_no_right_is_checked_all_questions_are_answered_with_yes(tmp_path: Path, codes: Checks):
    server = Server(tmp_path, codes)
    server.ask(Code.HEART_BEAT, JOE, {}, b'{"clientID":"c"}')
    (asked,) = server.reached
    assert isinstance(asked, Requester)
    assert (asked.username, asked.is_limited, asked.may_publish("Other")) == ("joe", False, True)
    asked.check("what was found", ["Other"], (Action.SUB,))
    assert server.guard.refusals.denied == 0


def test_a_handler_that_would_not_ask_is_not_served(server: Server):
    table = MethodTable()
    table.add(Code.VIEW_MESSAGE_BY_ID, lambda *_: b"answer")
    with pytest.raises(ValueError, match="request code 33: its handler does not ask"):
        server.guard.routes(table.routes)


async def test_failures_of_an_address_are_answered_later_and_later_and_hold_up_no_other(server: Server):
    for _ in range(5):
        server.refusal(Code.PULL_MESSAGE, fields=PULL)
    answers = [server.ask(Code.PULL_MESSAGE, None, PULL) for _ in range(3)]
    assert len(server.guard.refusals.late_answers) == 3
    # Another address, and the right secret behind the same one.
    server.refusal(Code.PULL_MESSAGE, fields=PULL, address="10.0.0.1:1")
    assert server.ask(Code.PULL_MESSAGE, JOE, PULL) == b"answer"
    for answer in answers:
        assert isinstance(answer, asyncio.Future)
        with pytest.raises(BrokerResponseError, match="username cannot be null"):
            await answer


async def test_the_wait_does_not_count_as_time_of_the_request(server: Server):
    for _ in range(5):
        server.refusal(Code.PULL_MESSAGE, fields=PULL)
    command = request(Code.PULL_MESSAGE, PULL)
    answer = server.routes[Code.PULL_MESSAGE].process(FakeConnection("127.0.0.1:5"), command)
    assert isinstance(answer, asyncio.Future)
    command.received_at = began = 100.0  # as the connection sets it once it has the answer
    counted: list[float] = []
    answer.add_done_callback(lambda _: counted.append(command.received_at - began))
    with pytest.raises(BrokerResponseError):
        await answer
    assert counted == pytest.approx([0.05])


async def test_a_request_whose_refusal_waits_keeps_neither_its_fields_nor_its_body(server: Server):
    for _ in range(5):
        server.refusal(Code.PULL_MESSAGE, fields=PULL)
    command = request(Code.PULL_MESSAGE, PULL, b"body")
    command.remark = "remark"
    assert isinstance(server.routes[Code.PULL_MESSAGE].process(FakeConnection("127.0.0.1:5"), command), asyncio.Future)
    assert [command.header, command.remark, command.body] == [None, None, b""]
    server.guard.refusals.late_answers.stop()


async def test_beyond_the_bound_the_answer_leaves_at_once_and_the_connection_is_closed(server: Server):
    for _ in range(5):
        server.refusal(Code.PULL_MESSAGE, fields=PULL)
    for _ in range(MAX_OF_ADDRESS):
        assert isinstance(server.ask(Code.PULL_MESSAGE, None, PULL), asyncio.Future)
    stranger = FakeConnection("127.0.0.1:6")
    with pytest.raises(BrokerResponseError, match="username cannot be null"):
        server.routes[Code.PULL_MESSAGE].process(stranger, request(Code.PULL_MESSAGE, PULL))
    assert "credentials" in (stranger.close_reason or "")
    # A served client behind the same address notices nothing.
    assert server.ask(Code.PULL_MESSAGE, JOE, PULL) == b"answer"
    server.guard.refusals.late_answers.stop()


async def test_a_flood_of_one_read_costs_a_bounded_number_of_checks_and_no_task(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    # None of the waits ends while the flood is checked.
    monkeypatch.setattr(failed_attempts, "_FIRST_DELAY_S", failed_attempts.MAX_DELAY_S)
    connection, transport, _ = connect(server.routes)
    tasks = len(asyncio.all_tasks())
    feed(connection, encode_frame(request(Code.PULL_MESSAGE, PULL)) * 5_000)
    await turns(3)
    assert server.guard.refusals.failed_attempts.failures == 5 + MAX_OF_ADDRESS + 1
    assert (len(server.guard.refusals.late_answers), len(transport.answers)) == (MAX_OF_ADDRESS, 6)
    assert (len(asyncio.all_tasks()), transport.is_closing()) == (tasks, True)
    server.guard.refusals.late_answers.stop()


async def test_a_late_refusal_takes_no_turn_of_a_handler_that_waits(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server.guard.refusals.failed_attempts, "failed", lambda _: 60.0)
    connection, _, endpoint = connect(server.routes)
    signed = request(Code.UPDATE_BROKER_CONFIG)
    ROOT.sign(signed)
    feed(connection, encode_frame(request(Code.UPDATE_BROKER_CONFIG)) * 20 + encode_frame(signed))
    await until(lambda: server.reached)
    assert (server.reached, len(server.guard.refusals.late_answers)) == ([True], 20)
    server.guard.refusals.late_answers.stop()
    await endpoint.stop("done")


async def test_late_refusals_of_a_lost_connection_leave_no_error_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["message"]))
    monkeypatch.setattr(server.guard.refusals.failed_attempts, "failed", lambda _: 0.01)
    connection, transport, endpoint = connect(server.routes)
    feed(connection, encode_frame(request(Code.UPDATE_BROKER_CONFIG)) * 20)
    assert len(server.guard.refusals.late_answers) == 20
    connection.connection_lost(None)
    await until(lambda: not len(server.guard.refusals.late_answers))
    await turns()
    gc.collect()
    assert (errors, connection.open_requests, transport.writes) == ([], 0, 0)
    await endpoint.stop("done")


def test_a_oneway_request_waits_for_no_answer_and_costs_the_connection(server: Server):
    for _ in range(20):
        server.refusal(Code.PULL_MESSAGE, fields=PULL, flag=FLAG_ONEWAY)
    connection = FakeConnection("127.0.0.1:6")
    with pytest.raises(BrokerResponseError):
        server.routes[Code.PULL_MESSAGE].process(connection, request(Code.PULL_MESSAGE, PULL, oneway=True))
    assert not connection.is_open


def test_rights_replace_the_addresses_of_protected_mode(server: Server, tmp_path: Path):
    assert {route.audience for route in server.routes.values()} == {Audience.CLIENT}
    for codes in (
        Checks(authorizes=True),
        Checks(lifts_protected_mode=True),
        Checks(authorizes=True, every_user={Code.GET_BROKER_CONFIG}, lifts_protected_mode=True),
    ):
        assert Server(tmp_path, codes).routes[Code.GET_BROKER_CONFIG].audience is Audience.ADMINISTRATION


def test_without_authorization_each_user_is_served(tmp_path: Path):
    server = Server(tmp_path, Checks())
    server.refusal(Code.GET_BROKER_CONFIG)
    assert server.ask(Code.GET_BROKER_CONFIG, JOE) == b"answer"


def test_codes_on_white_lists_are_served(tmp_path: Path):
    pull = {int(Code.PULL_MESSAGE)}
    server = Server(tmp_path, Checks(authorizes=True, every_user=pull))
    server.refusal(Code.PULL_MESSAGE, fields=PULL)
    server.ask(Code.PULL_MESSAGE, JOE, {**PULL, "topic": "Other"})
    both = Server(tmp_path, Checks(authorizes=True, unsigned=pull, every_user=pull))
    assert both.routes[Code.PULL_MESSAGE] is both.own[Code.PULL_MESSAGE]


def test_a_code_served_unsigned_still_needs_the_user_whose_rights_count(tmp_path: Path):
    server = Server(tmp_path, Checks(authorizes=True, unsigned={int(Code.PULL_MESSAGE)}))
    assert "username" in server.refusal(Code.PULL_MESSAGE, fields=PULL)
    # The name alone is not enough.
    assert "signature" in server.refusal(Code.PULL_MESSAGE, fields={**PULL, "AccessKey": "root"})


def bound(server: Server, connection: FakeConnection, name: str = "joe") -> BoundSigner:
    answer = server.routes[NONCE_CODE].process(connection, request(NONCE_CODE))
    assert isinstance(answer, RemotingCommand)
    return BoundSigner(name, f"{name}-secret", "", answer.header.nonce)


def test_a_bound_signature_counts_once_and_on_its_connection(server: Server):
    connection, other = FakeConnection("127.0.0.1:5"), FakeConnection("127.0.0.1:6")
    command = request(Code.PULL_MESSAGE, PULL)
    bound(server, connection).sign(command)
    fields = dict(command.header)
    pull = server.routes[Code.PULL_MESSAGE].process
    assert pull(connection, command) == b"answer"
    for peer, words in ((connection, "check signature failed"), (other, "has no nonce"), (other, "signature failed")):
        if words == "signature failed":
            bound(server, other)
        with pytest.raises(BrokerResponseError, match=words):
            pull(peer, request(Code.PULL_MESSAGE, dict(fields)))
    assert len(server.reached) == 1
    # Another request with the same fields is not what was signed.
    lite = request(Code.PULL_MESSAGE, PULL)
    bound(server, connection).sign(lite)
    with pytest.raises(BrokerResponseError, match="check signature failed"):
        server.routes[Code.HEART_BEAT].process(connection, request(Code.HEART_BEAT, dict(lite.header)))


@pytest.mark.parametrize("users", [{"joe"}, {"*"}])
def test_a_user_may_have_to_bind_its_signatures(tmp_path: Path, users: set[str]):
    server = Server(tmp_path, Checks(authorizes=True, bound_users=users))
    assert "boundSignatureUsers" in server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL)
    connection = FakeConnection("127.0.0.1:5")
    command = request(Code.PULL_MESSAGE, PULL)
    bound(server, connection).sign(command)
    assert server.routes[Code.PULL_MESSAGE].process(connection, command) == b"answer"
    if users == {"joe"}:
        assert server.ask(Code.PULL_MESSAGE, ROOT, PULL) == b"answer"
    digest = hmac.digest(b"joe-secret", b"now", "sha1").hex()
    call = {"x-mq-date-time": "now", "authorization": f"MQv2-HMAC-SHA1 Credential=joe, Signature={digest}"}
    with pytest.raises(AuthorizationError, match="Those of gRPC cannot be; call as another user"):
        server.guard.check_call(call, list, "127.0.0.1")


def test_a_nonce_is_forgotten_with_its_connection(server: Server):
    connection = FakeConnection("127.0.0.1:5")
    bound(server, connection)
    assert len(server.guard._bindings) == 1
    del connection
    gc.collect()
    assert len(server.guard._bindings) == 0


def test_open_codes_are_not_checked(tmp_path: Path):
    server = Server(tmp_path, Checks(authorizes=True, open={int(Code.PULL_MESSAGE)}))
    assert server.routes[Code.PULL_MESSAGE] is server.own[Code.PULL_MESSAGE]


def test_a_decision_is_made_once_for_a_user_and_the_names_of_a_request(server: Server, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    each = RequestRights.each

    def noting(rights: RequestRights, code: int, *more: object) -> Iterator[Right]:
        asked.append(code)
        return each(rights, code, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestRights, "each", noting)
    for _ in range(3):
        server.ask(Code.PULL_MESSAGE, JOE, PULL)
    assert len(asked) == 1

    server.reached.clear()
    for fields in ({**PULL, "topic": "Other"}, {**PULL, "consumerGroup": "Other"}, {"topic": "T"}):
        for _ in range(2):
            server.refusal(Code.PULL_MESSAGE, JOE, fields=fields)
    server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL, address="10.0.0.1:99")
    assert len(asked) == 8, "refusals are not kept"

    server.store.rules = AccessRules(server.store.rules.users, {}, server.store.rules)
    server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL)


async def test_a_change_of_the_table_counts_from_the_next_request_on(tmp_path: Path):
    server = Server(tmp_path, Checks(authorizes=True))
    await server.store.start()
    try:
        assert server.ask(Code.PULL_MESSAGE, RequestSigner("joe", "joe-secret"), PULL) == b"answer"
        server.reached.clear()
        await server.store.add_missing([User("root", "root-secret", UserType.SUPER)])
        await server.store.delete_user("joe")
        assert "signature" in server.refusal(Code.PULL_MESSAGE, JOE, fields=PULL)
    finally:
        await server.store.stop()


JOINED = b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","subscriptionDataSet":[{"topic":"T"}]}]}'


def without_entries(server: Server) -> AccessRules:
    return AccessRules(server.store.rules.users, {}, server.store.rules)


@pytest.mark.parametrize(
    ("leaves", "older", "is_member"), [(False, ["CG"], True), (True, ["CG"], False), (False, [], False)]
)
async def test_a_member_needs_its_rights_until_it_leaves_the_group(
    server: Server, leaves: bool, older: list[str], is_member: bool
):
    connection = FakeConnection("127.0.0.1:5")
    server.ask(Code.HEART_BEAT, JOE, {}, JOINED, connection=connection)
    server.older = older
    server.ask(Code.HEART_BEAT, JOE, {}, b'{"clientID":"c"}', connection=connection)
    if leaves:
        server.ask(Code.UNREGISTER_CLIENT, JOE, {"clientID": "c", "consumerGroup": "CG"}, connection=connection)
    server.store.rules = without_entries(server)
    server.guard.members.ask()
    await turns(2)
    assert connection.is_open is not is_member


async def test_a_heartbeat_that_its_handler_refuses_leaves_nothing_behind(server: Server):
    with pytest.raises(BrokerResponseError, match="too long"):
        server.ask(Code.HEART_BEAT, JOE, {}, JOINED.replace(b'"c"', b'"refused"'))
    assert len(server.guard.members) == 0


async def waited(server: Server, code: Code, signer: RequestSigner, rules: AccessRules) -> Command:
    """Return the answer to a request if other policies are in force when its work begins than when it was checked."""
    connection, transport, endpoint = connect(server.routes)
    command = request(code, {"topic": "T", "consumerGroup": "CG"})
    signer.sign(command)
    feed(connection, encode_frame(command))
    server.store.rules = rules
    await until(lambda: transport.answers)
    await endpoint.tasks.stop()
    return transport.answers[0]


@pytest.fixture
def everywhere(tmp_path: Path) -> Server:
    """A server whose user joe has rights at the address of a fake transport."""
    server = Server(tmp_path, Checks(authorizes=True))
    entries = tuple(
        PolicyEntry(parse_resource(name), (Action.SUB, Action.UPDATE), Decision.ALLOW)
        for name in ("Topic:T", "Group:CG", "Cluster:C")
    )
    server.store.rules = AccessRules(server.store.rules.users, {name: Acl(name, entries) for name in ("joe", "root")})
    return server


WAITING = [(Code.UPDATE_BROKER_CONFIG, ROOT), (Code.UPDATE_BROKER_CONFIG, JOE), (Code.PEEK_MESSAGE, JOE)]


@pytest.mark.parametrize(("code", "signer"), WAITING)
async def test_a_user_deleted_while_its_request_waits_for_its_turn_is_refused(
    everywhere: Server, code: Code, signer: RequestSigner
):
    answer = await waited(everywhere, code, signer, AccessRules({}, {}, everywhere.store.rules))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "not found" in (answer.remark or "")
    assert everywhere.reached == []
    assert everywhere.guard.refusals.denied == 1


@pytest.mark.parametrize(("code", "signer"), WAITING)
async def test_a_user_who_keeps_its_rights_is_served_when_its_turn_comes(
    everywhere: Server, code: Code, signer: RequestSigner
):
    users, acls = everywhere.store.rules.users, everywhere.store.rules.acls
    answer = await waited(everywhere, code, signer, AccessRules(users, acls, everywhere.store.rules))
    assert answer.code == ResponseCode.SUCCESS
    assert len(everywhere.reached) == 1


async def test_a_user_who_is_no_super_user_any_more_does_not_count_as_one_when_its_turn_comes(everywhere: Server):
    rules = everywhere.store.rules
    users = {**rules.users, "root": User("root", "root-secret")}
    await waited(everywhere, Code.UPDATE_BROKER_CONFIG, ROOT, AccessRules(users, rules.acls, rules))
    assert everywhere.reached == [False]
