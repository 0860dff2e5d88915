"""Check of each request before its handler (AuthenticationPipeline and AuthorizationPipeline).

A guarded route decodes the fields as they came, since the signature covers them, asks who signed them and if that user
has the rights, and only then decodes the typed header. ``signed_runs`` checks requests that come together.

Credentials that fail are answered late, the later the more often the address has failed (``failed_attempts``). The
wait holds up no other request, and does not count as its time. When too many of an address wait already
(``late_refusals``), the answer leaves at once and the connection is closed.

What outlives the check of its request is checked again when policies change (``grants``).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, cast
from weakref import WeakKeyDictionary

from rocketbroker.auth.audit_log import AuditLog, Source
from rocketbroker.auth.authentication import Authenticator
from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.errors import AuthenticationError, AuthorizationError, RefusalError
from rocketbroker.auth.failed_attempts import FailedAttempts
from rocketbroker.auth.grants import Grant, Members
from rocketbroker.auth.late_refusals import LateRefusals
from rocketbroker.auth.request_rights import ASKS, DEPENDS_ON, RequestRights, member_rights
from rocketbroker.auth.requester import Requester
from rocketbroker.auth.signed_runs import SignedRuns
from rocketbroker.auth.users import User
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE, NONCE_CODE, Binding, NonceResponseHeader
from rocketbroker.codec.remoting.frame import HeaderFieldError, with_typed_header
from rocketbroker.codec.remoting.handler import HELD, Answer, Audience, Connection, InTurn, Process, Route, RunHandler
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.common.event_log import RefusalLog

log = logging.getLogger(__name__)

CheckLength: TypeAlias = Mapping[int, Callable[[ReadableBuffer], None]]


class CheckedCodes(NamedTuple):
    """Checks that a server makes.

    Attributes:
        authorizes: rights are checked, too.
        unsigned: codes served without credentials (authenticationWhitelist), if no right is asked for them either.
        every_user: codes served to every user (authorizationWhitelist).
        open: codes that are not checked at all.
        bound_users: names of users whose signatures must be bound to their connection; ``*`` for all.
        lifts_protected_mode: each code beyond those of clients asks for a right, so that addresses need not decide.
    """

    authorizes: bool = False
    unsigned: Collection[int] = frozenset()
    every_user: Collection[int] = frozenset()
    open: Collection[int] = frozenset()
    bound_users: Collection[str] = frozenset()
    lifts_protected_mode: bool = False


class RulesInForce(Protocol):
    """Users and policies as they change: a table (``AccessStore``), or a copy of one (``AccessCopy``)."""

    @property
    def rules(self) -> AccessRules:
        """Users and policies in force."""

    def on_change(self, listener: Callable[[AccessRules], None]) -> None:
        """Call ``listener`` with new rules."""


class RequestGuard:
    """Wraps the routes of a server.

    Args:
        store: users and policies.
        rights: rights that each code needs.
        clock: its monotonic time counts for the delays of failed attempts.
        codes: what is checked.
    """

    def __init__(self, store: RulesInForce, rights: RequestRights, clock: Clock, codes: CheckedCodes) -> None:
        self._store = store
        self._rights = rights
        self._cluster = "" if rights.as_apache else rights.cluster
        self._codes = codes
        self._authenticator = Authenticator(store.rules)
        self.on_change = store.on_change
        self.on_change(self._authenticator.follow)
        self._check_length: CheckLength = {}
        self._refusals = RefusalLog(log)
        #: Requests whose credentials failed.
        self.failed_attempts: Final = FailedAttempts(clock)
        #: Answers to them that wait.
        self.late_refusals: Final = LateRefusals()
        # Connections whose clients have asked for a nonce.
        self._bindings: WeakKeyDictionary[Connection, Binding] = WeakKeyDictionary()
        #: Connections of clients in groups.
        self.members: Final = Members()
        store.on_change(lambda _: self.members.ask())
        #: Requests of users who lack the right.
        self.denied = 0
        #: Takes each refusal, if a server has it.
        self.audit: AuditLog | None = None

    def follow_loaded(self) -> None:
        """Check by the table that was loaded."""
        self._authenticator.follow(self._store.rules)

    def routes(self, routes: Mapping[int, Route], check_length: CheckLength | None = None) -> dict[int, Route]:
        """Return the routes, each with the check before its handler, unless its code is not checked.

        Args:
            routes: by request code.
            check_length: for codes whose handlers reject a long body before they decode it: a function that raises
                BrokerResponseError for one. It is called before the body is decoded for its rights.

        Raises:
            ValueError: The handler of a code of ``ASKS`` does not ask.
        """
        self._check_length = check_length or {}
        for code in ASKS & routes.keys():
            if not routes[code].asks:
                raise ValueError(f"request code {code}: its handler does not ask about the user")
        guarded = {code: self._guarded(route) for code, route in routes.items()}
        return {**guarded, NONCE_CODE: Route(NONCE_CODE, self._answer_nonce, None, Audience.CLIENT)}

    def _answer_nonce(self, connection: Connection, _command: Command) -> Command:
        """Answer the nonce of a connection, by which its client may bind signatures to it."""
        return response(header=NonceResponseHeader(self._binding_of(connection).nonce))

    def _binding_of(self, connection: Connection) -> Binding:
        binding = self._bindings.get(connection)
        if binding is None:
            binding = self._bindings[connection] = Binding()
        return binding

    def _guarded(self, route: Route) -> Route:
        code, checked = route.code, self._codes
        asks_right = checked.authorizes and code not in checked.every_user
        if code in checked.open or (code in checked.unsigned and not asks_right):
            return route
        guarded = Route(
            code,
            self._process(route, asks_right=asks_right),
            None,
            Audience.CLIENT if asks_right and checked.lifts_protected_mode else route.audience,
            takes_large_bodies=route.takes_large_bodies,
            runs=self._signed_runs(route, asks_right=asks_right),
        )
        guarded.runs_later = route.runs_later
        return guarded

    def _signed_runs(self, route: Route, *, asks_right: bool) -> SignedRuns | None:
        if not isinstance(route.runs, RunHandler) or route.header_type is None or route.asks:
            return None

        def rights(fields: Mapping[str, str]) -> Collection[Right]:
            return self._rights.of(route.code, fields) if asks_right else ()

        return SignedRuns(route.runs, route.header_type, rights, self._may_serve)

    def _may_serve(
        self,
        name: str,
        contents: Iterable[bytes],
        signatures: Sequence[bytes],
        rights: Collection[Right],
        remote_address: str,
    ) -> bool:
        """Return true if each request of a run may be served; a refusal is counted once it is answered."""
        user = self._authenticator.signer_of_all(name, contents, signatures)
        if user is None or self._must_bind(user):
            return False
        return self._store.rules.allows(user, rights, host_of(remote_address), self._cluster)

    def _process(self, route: Route, *, asks_right: bool) -> Process:
        code, header_type = route.code, route.header_type
        joins, leaves = code == RequestCode.HEART_BEAT, code == RequestCode.UNREGISTER_CLIENT
        asks, is_asked = route.asks, asks_right and not self._rights.as_apache
        runs_later = route.runs_later

        def process(connection: Connection, command: Command) -> Answer:
            address = host_of(connection.remote_address)
            fields = command.header
            try:
                user = self.check(
                    code,
                    fields,
                    command.version,
                    command.body,
                    address,
                    asks_right=asks_right,
                    # A look-up by a weak reference costs more than this one, and few requests are bound.
                    binding=self._bindings.get(connection) if fields and BOUND_SIGNATURE in fields else None,
                )
            except AuthenticationError as error:
                return self._refused(error, connection, command)
            except AuthorizationError as error:
                self.report(error, code, connection.remote_address)
                raise BrokerResponseError(ResponseCode.NO_PERMISSION, str(error)) from None
            except CodecError as error:
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
            if header_type is not None:
                try:
                    command = with_typed_header(command, header_type)
                except HeaderFieldError as error:
                    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if asks:
                requester = self._requester(user, code, connection, is_asked=is_asked)
                if joins:
                    requester.joined = partial(self._joined, user, connection, asks_right)
                answer = route.process(connection, command, requester)
            else:
                answer = route.process(connection, command)
                if leaves:
                    self.members.left(connection, (fields or {}).get("consumerGroup", ""))
            if runs_later or answer is HELD or type(answer) is InTurn:
                make = partial(self._grant, user, code, fields, command.body, connection, asks_right=asks_right)
                # A route that runs later has a copy of the body. A view of the buffer does not outlive this call.
                command.grant = partial(self._ask_later, make, self.version) if runs_later else make()
            return answer

        return process

    def _grant(
        self,
        user: User,
        code: int,
        fields: Mapping[str, str] | None,
        body: ReadableBuffer,
        connection: Connection,
        *,
        asks_right: bool,
        version: int | None = None,
    ) -> Grant:
        rights = self._rights.of(code, fields, body) if asks_right else ()
        address, refused = host_of(connection.remote_address), self._on_refusal(code, connection)
        return Grant(user, rights, address, lambda: self._store.rules, refused, self._cluster, version=version)

    def _ask_later(self, make: Callable[..., Grant], version: int) -> None:
        """Ask the grant of a request whose turn has come, if policies have changed since they had a version.

        Most begin under the policies by which they were checked, and need no second look at their bodies.

        Raises:
            BrokerResponseError: As for a grant.
        """
        if self.version == version:
            return
        try:
            grant = make(version=version)
        except CodecError as error:
            # Nobody has read the body yet: it came from a Super user.
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        grant()

    def _joined(
        self,
        user: User,
        connection: Connection,
        asks_right: bool,
        heartbeat: HeartbeatData,
        registered: Iterable[ConsumerData],
        groups: Collection[str],
    ) -> None:
        """Keep the rights of a heartbeat, for each of its groups that was registered."""
        address, refused = host_of(connection.remote_address), self._on_refusal(RequestCode.HEART_BEAT, connection)

        def joined(group: str, rights: Iterable[Right]) -> None:
            kept = frozenset(rights) if asks_right else ()
            grant = Grant(user, kept, address, lambda: self._store.rules, refused, self._cluster)
            self.members.joined(connection, group, grant, keeps_subscriptions=heartbeat.without_sub)

        joined("", ())
        for consumer in registered:
            joined(consumer.group_name, member_rights(consumer, as_apache=self._rights.as_apache))
        self.members.stayed(connection, groups)

    def _requester(self, user: User, code: int, connection: Connection, *, is_asked: bool) -> Requester:
        address, refused = host_of(connection.remote_address), self._on_refusal(code, connection)
        return Requester(user.name, address, self._cluster, lambda: self._store.rules, refused, is_limited=is_asked)

    def _on_refusal(self, code: int, connection: Connection) -> Callable[[AuthorizationError], None]:
        def refused(error: AuthorizationError) -> None:
            self.denied += 1
            self.report(error, code, connection.remote_address)

        return refused

    def check(
        self,
        code: int,
        fields: Mapping[str, str] | None,
        version: int,
        body: ReadableBuffer,
        address: str,
        *,
        asks_right: bool,
        binding: Binding | None = None,
    ) -> User:
        """Check who signed a request, and if that user may send it; return the user.

        Args:
            code: its request code.
            fields: texts of its ``extFields``, as they came.
            version: ``version`` of the command.
            body: its body.
            address: IP address of the peer.
            asks_right: check the rights, too.
            binding: nonce and counters of the connection, if its client has asked for them.

        Raises:
            AuthenticationError: It is not signed by a user who is enabled.
            AuthorizationError: The user lacks a right, or must bind its signatures.
            BrokerResponseError: The body is too long, or it names too much.
            CodecError: The body, which names what the request is about, cannot be read.
        """
        user = self._authenticator.authenticate(fields, version, body, code, binding)
        if self._must_bind(user) and BOUND_SIGNATURE not in (fields or {}):
            raise self._unbound(
                user, "Set bind_signatures of the client, or bindSignatures of mqadmin; RocketMQ's clients cannot do so"
            )
        if not asks_right or user.is_super:
            return user
        rules, names = self._store.rules, DEPENDS_ON.get(code)
        request = None if names is None else (code, user.name, address, *map((fields or {}).get, names))
        if request is not None and rules.has_granted(request):
            return user
        check_length = self._check_length.get(code)
        if check_length is not None:
            check_length(body)
        try:
            rules.check(user.name, self._rights.each(code, fields, body), address, self._cluster)
        except AuthorizationError:
            self.denied += 1
            raise
        if request is not None:
            rules.grant(request)
        return user

    def _must_bind(self, user: User) -> bool:
        bound = self._codes.bound_users
        return bool(bound) and (user.name in bound or "*" in bound)

    def _unbound(self, user: User, advice: str) -> AuthorizationError:
        # No failed guess: the signature is right.
        self.denied += 1
        text = f"User:{user.name}: boundSignatureUsers demands signatures that are bound to their connection. {advice}"
        return AuthorizationError(text, user.name)

    @property
    def version(self) -> int:
        """Number of the policies in force; it grows with each change."""
        return self._store.rules.version

    def check_call(self, metadata: Mapping[str, str], rights: Callable[[], Iterable[Right]], address: str) -> User:
        """Check who signed a call of the gRPC port, and if that user may send it; return the user.

        Args:
            metadata: of the call, with names in small letters.
            rights: returns the rights that it needs.
            address: IP address of the peer.

        Raises:
            AuthenticationError: It is not signed by a user who is enabled.
            AuthorizationError: The user lacks a right.
        """
        user = self._authenticator.authenticate_call(metadata)
        if self._must_bind(user):
            raise self._unbound(user, "Those of gRPC cannot be; call as another user")
        if self._codes.authorizes and not user.is_super:
            try:
                self._store.rules.check(user.name, rights(), address, self._cluster)
            except AuthorizationError:
                self.denied += 1
                raise
        return user

    def report(self, error: RefusalError, request: int | str, peer: str) -> None:
        """Log a refusal, and enter it into the audit log.

        Args:
            error: the reason.
            request: the request code, or the type of the request of a gRPC call.
            peer: ``ip:port`` of the client.
        """
        what = f"request code {request}" if isinstance(request, int) else f"call of {request}"
        self._refusals.add(f"{what} from {peer}: {error}")
        if self.audit is not None:
            self.audit.refused(Source(error.username, peer), request, str(error))

    def failed(self, error: AuthenticationError, request: int | str, peer: str) -> float:
        """Count and report credentials that failed; return the seconds to wait before the answer.

        Args:
            error: the failure.
            request: the request code, or the type of the request of a gRPC call.
            peer: ``ip:port`` of the client.
        """
        self.report(error, request, peer)
        return self.failed_attempts.failed(host_of(peer))

    def _refused(self, error: AuthenticationError, connection: Connection, command: Command) -> Answer:
        address = host_of(connection.remote_address)
        delay_s = self.failed(error, command.code, connection.remote_address)
        refusal = BrokerResponseError(ResponseCode.NO_PERMISSION, str(error))
        if not delay_s:
            raise refusal from None
        # One-way requests have no answer that could wait.
        waiting = None if command.flag & FLAG_ONEWAY else self.late_refusals.hold(address, delay_s, refusal)
        if waiting is None:
            connection.close_after_batch("too many of its requests had no valid credentials")
            raise refusal from None
        # A peer chooses how long its fields are, and the answer needs none of them.
        command.header, command.remark, command.body = None, None, b""
        waiting.add_done_callback(partial(_leave_out, command, delay_s))
        return cast("Answer", waiting)


def _leave_out(command: Command, delay_s: float, _waited: object) -> None:
    """Leave a wait out of the time of a request, so that it is no slow one."""
    command.received_at += delay_s


def host_of(address: str) -> str:
    """Return the IP address of ``ip:port``."""
    return address.rpartition(":")[0].strip("[]")
