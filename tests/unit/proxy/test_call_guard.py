"""Rights that each call of the gRPC port needs, and answers to those without."""

import asyncio
import hashlib
import hmac
from collections.abc import Collection
from pathlib import Path

import pytest

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.audit_log import Source
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.late_refusals import MAX_OF_ADDRESS
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, UserType
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.call_context import StatusError
from rocketbroker.proxy.call_guard import CallGuard, rights_of
from tests.support.fakes import FakeClock

T, U, G, RETRY = (pb.Resource(name=name) for name in ("T", "U", "G", "%RETRY%H"))
BOTH = ["Sub on Group:G", "Sub on Topic:T"]
RIGHTS = [
    (pb.SendMessageRequest(messages=[pb.Message(topic=T), pb.Message(topic=U)]), ["Pub on Topic:T", "Pub on Topic:U"]),
    (pb.SendMessageRequest(messages=[pb.Message(topic=RETRY)]), ["Sub on Group:H"]),
    (pb.SendMessageRequest(), []),
    (pb.RecallMessageRequest(topic=T), ["Pub on Topic:T"]),
    (pb.EndTransactionRequest(topic=T), ["Pub on Topic:T"]),
    (pb.ReceiveMessageRequest(group=G, message_queue=pb.MessageQueue(topic=T)), BOTH),
    (
        pb.ReceiveMessageRequest(group=G, message_queue=pb.MessageQueue(topic=RETRY)),
        ["Sub on Group:G", "Sub on Group:H"],
    ),
    (pb.AckMessageRequest(group=G, topic=T), BOTH),
    (pb.ChangeInvisibleDurationRequest(group=G, topic=T), BOTH),
    (pb.ForwardMessageToDeadLetterQueueRequest(group=G, topic=T), BOTH),
    (pb.QueryAssignmentRequest(group=G, topic=T), BOTH),
    (pb.HeartbeatRequest(group=G, client_type=pb.PRODUCER), ["Sub on Group:G"]),
    (pb.HeartbeatRequest(client_type=pb.PRODUCER), []),
    (pb.NotifyClientTerminationRequest(group=G), ["Sub on Group:G"]),
    (pb.NotifyClientTerminationRequest(), []),
    (pb.QueryRouteRequest(topic=T), ["Pub or Sub or Get on Topic:T"]),
    (pb.QueryRouteRequest(topic=RETRY), ["Sub or Get on Group:H"]),
    (
        pb.TelemetryCommand(settings=pb.Settings(publishing=pb.Publishing(topics=[T, U]))),
        ["Pub on Topic:T", "Pub on Topic:U"],
    ),
    (
        pb.TelemetryCommand(
            settings=pb.Settings(subscription=pb.Subscription(group=G, subscriptions=[pb.SubscriptionEntry(topic=T)]))
        ),
        BOTH,
    ),
    (pb.TelemetryCommand(thread_stack_trace=pb.ThreadStackTrace(nonce="1")), []),
]


@pytest.mark.parametrize(("request_", "rights"), RIGHTS)
def test_the_rights_of_a_call_are_those_of_its_names(request_, rights: list[str]):
    assert [str(right) for right in rights_of(request_)] == rights


def test_each_method_of_the_service_has_a_row():
    methods = pb.DESCRIPTOR.services_by_name["MessagingService"].methods
    assert {method.input_type.name for method in methods} == {request.DESCRIPTOR.name for request, _ in RIGHTS}


def signed(name: str, secret: str, date: str = "20260101T000000Z") -> dict[str, str | bytes]:
    digest = hmac.digest(secret.encode(), date.encode(), hashlib.sha1).hex()
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": date, "authorization": text, "trace-bin": b"\xff"}


def guard_of(
    tmp_path: Path, *, authorizes: bool = True, bound_users: Collection[str] = ()
) -> tuple[CallGuard, RequestGuard]:
    store = AccessStore(tmp_path / "table", SecretSeal(bytes(32)), FakeClock())
    users = [User("root", "root-secret", UserType.SUPER), User("joe", "joe-secret")]
    allow = PolicyEntry(parse_resource("Topic:T"), (Action.PUB,), Decision.ALLOW, ("127.0.0.1",))
    wide = PolicyEntry(parse_resource("Topic:rmq_*"), (Action.PUB,), Decision.ALLOW)
    store.rules = AccessRules({user.name: user for user in users}, {"joe": Acl("joe", (allow, wide))})
    guard = RequestGuard(store, RequestRights("C"), FakeClock(), Checks(authorizes, bound_users=bound_users))
    guard.follow_loaded()
    return CallGuard(guard), guard


SEND = pb.SendMessageRequest(messages=[pb.Message(topic=T)])
OTHER = pb.SendMessageRequest(messages=[pb.Message(topic=T), pb.Message(topic=U)])
TIMER = pb.SendMessageRequest(messages=[pb.Message(topic=pb.Resource(name="rmq_sys_wheel_timer"))])


@pytest.mark.parametrize(
    ("metadata", "request_", "peer", "code"),
    [
        ({}, SEND, "127.0.0.1:1", pb.UNAUTHORIZED),
        (signed("joe", "guess"), SEND, "127.0.0.1:1", pb.UNAUTHORIZED),
        (signed("ann", "joe-secret"), SEND, "127.0.0.1:1", pb.UNAUTHORIZED),
        (signed("joe", "joe-secret"), OTHER, "127.0.0.1:1", pb.FORBIDDEN),
        (signed("joe", "joe-secret"), SEND, "10.0.0.1:1", pb.FORBIDDEN),
        (signed("joe", "joe-secret"), TIMER, "127.0.0.1:1", pb.FORBIDDEN),
    ],
)
def test_a_call_without_credentials_or_rights_is_refused(tmp_path, metadata, request_, peer: str, code: int):
    calls, guard = guard_of(tmp_path)
    with pytest.raises(StatusError) as caught:
        calls.check(metadata, request_, peer)
    assert caught.value.code == code
    assert (guard.refusals.denied, guard.refusals.failed_attempts.failures) == (
        (1, 0) if code == pb.FORBIDDEN else (0, 1)
    )


def test_a_user_with_the_right_is_served(tmp_path: Path):
    calls, _ = guard_of(tmp_path)
    assert calls.check(signed("joe", "joe-secret"), SEND, "127.0.0.1:1") == "joe"
    assert calls.check(signed("root", "root-secret"), OTHER, "10.0.0.1:1") == "root"
    calls, _ = guard_of(tmp_path, authorizes=False)
    assert calls.check(signed("joe", "joe-secret"), OTHER, "10.0.0.1:1") == "joe"


def test_a_user_who_must_bind_its_signatures_is_refused(tmp_path: Path):
    calls, guard = guard_of(tmp_path, bound_users={"root"})
    assert calls.check(signed("joe", "joe-secret"), SEND, "127.0.0.1:1") == "joe"
    with pytest.raises(StatusError, match="User:root: boundSignatureUsers demands") as caught:
        calls.check(signed("root", "root-secret"), SEND, "127.0.0.1:1")
    assert (caught.value.code, guard.refusals.denied, guard.refusals.failed_attempts.failures) == (pb.FORBIDDEN, 1, 0)


async def refused(calls: CallGuard) -> None:
    """Send a call without a signature, and wait for its refusal.

    Raises:
        StatusError: the refusal.
    """
    waiting = calls.check({}, SEND, "127.0.0.1:1")
    assert isinstance(waiting, asyncio.Future)
    await waiting


async def test_failures_of_an_address_are_answered_late(tmp_path: Path):
    calls, guard = guard_of(tmp_path)
    delays = []
    for _ in range(7):
        with pytest.raises(StatusError) as caught:
            await refused(calls)
        assert caught.value.code == pb.UNAUTHORIZED
        delays.append(caught.value.delay_s)
    assert delays == pytest.approx([0.0] * 5 + [0.05, 0.1], rel=0.3)
    assert len(guard.refusals.late_answers) == 0


async def test_calls_beyond_the_bound_fail_at_once(tmp_path: Path):
    calls, guard = guard_of(tmp_path)
    for _ in range(5):
        guard.refusals.failed_attempts.failed("127.0.0.1")
    for _ in range(MAX_OF_ADDRESS):
        assert isinstance(calls.check({}, SEND, "127.0.0.1:1"), asyncio.Future)
    with pytest.raises(StatusError) as caught:
        calls.check({}, SEND, "127.0.0.1:1")
    assert caught.value.delay_s == 0.0
    assert calls.check(signed("joe", "joe-secret"), SEND, "127.0.0.1:1") == "joe"
    guard.refusals.late_answers.stop()


class Audit:
    """An audit log that keeps the users and reasons of its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str | None, str]] = []

    def refused(self, source: Source, _request: object, reason: str) -> None:
        self.lines.append((source.user, reason))


def test_a_call_that_was_served_and_may_not_be_any_more_is_logged_and_is_no_failed_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    calls, guard = guard_of(tmp_path)
    guard.refusals.audit = audit = Audit()  # type: ignore[assignment]
    lost = calls.refusal(signed("joe", "joe-secret"), OTHER, "127.0.0.1:1")
    changed = calls.refusal(signed("joe", "older"), SEND, "127.0.0.1:1")
    assert lost is not None
    assert changed is not None
    assert (lost.code, changed.code) == (pb.FORBIDDEN, pb.UNAUTHORIZED)
    assert (guard.refusals.denied, guard.refusals.failed_attempts.failures) == (2, 0)
    assert "call of SendMessage from 127.0.0.1:1: User:joe has no permission" in caplog.text
    assert audit.lines == [("joe", lost.message), ("joe", changed.message)]
