"""Check of each request before its handler (AuthenticationPipeline and AuthorizationPipeline).

A guarded route decodes the fields as they came, since the signature covers them, asks who signed them and if that user
has the rights, and only then decodes the typed header. ``signed_runs`` checks requests that come together.

Credentials that fail are answered late (``refusals``). The wait holds up no other request, and does not count as its
time. When too many of an address wait already, the answer leaves at once and the connection is closed.

What outlives the check of its request is checked again when policies change (``request_grants``).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, cast
from weakref import WeakKeyDictionary

from rocketbroker.auth.authentication import Authenticator
from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.errors import AuthenticationError, AuthorizationError, RefusalError
from rocketbroker.auth.grants import Grant
from rocketbroker.auth.refusals import Refusals
from rocketbroker.auth.request_grants import CheckedRequest, RequestGrants
from rocketbroker.auth.request_rights import ASKS, DEPENDS_ON, RequestRights
from rocketbroker.auth.signed_runs import SignedRuns, Signer
from rocketbroker.auth.users import User
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_id import host_of
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE, NONCE_CODE, Binding, NonceResponseHeader
from rocketbroker.codec.remoting.frame import HeaderFieldError, with_typed_header
from rocketbroker.codec.remoting.handler import HELD, Answer, Audience, Connection, InTurn, Process, Route, RunHandler
from rocketbroker.codec.remoting.remoting_command import FLAG_ONEWAY, Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError, CodecError

CheckLength: TypeAlias = Mapping[int, Callable[[ReadableBuffer], None]]


class Checks(NamedTuple):
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
        checks: what is checked.
    """

    def __init__(self, store: RulesInForce, rights: RequestRights, clock: Clock, checks: Checks) -> None:
        self._store = store
        self._rights = rights
        self._checks = checks
        self._authenticator = Authenticator(store.rules)
        self.on_change = store.on_change
        self.on_change(self._authenticator.follow)
        self._check_length: CheckLength = {}
        #: Counts, logs and delays what is refused.
        self.refusals: Final = Refusals(clock)
        self._grants = RequestGrants(lambda: store.rules, rights, self.refusals)
        # Connections whose clients have asked for a nonce.
        self._bindings: WeakKeyDictionary[Connection, Binding] = WeakKeyDictionary()
        #: Connections of clients in groups.
        self.members: Final = self._grants.members
        store.on_change(lambda _: self.members.ask())

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
        code, checks = route.code, self._checks
        asks_right = checks.authorizes and code not in checks.every_user
        if code in checks.open or (code in checks.unsigned and not asks_right):
            return route
        guarded = Route(
            code,
            self._process(route, asks_right=asks_right),
            None,
            Audience.CLIENT if asks_right and checks.lifts_protected_mode else route.audience,
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

        def signer(name: str, needed: Collection[Right]) -> Signer:
            store = self._store
            decide = partial(self._decide, name, needed, route.code, asks_right)
            return Signer(lambda: store.rules.version, partial(self._authenticator.key_of, name), decide)

        return SignedRuns(route, route.runs, rights, signer)

    def _decide(
        self, name: str, rights: Collection[Right], code: int, asks_right: bool, connection: Connection
    ) -> Grant | None:
        """Return the grant of requests that need no bound signature; no refusal is counted."""
        rules = self._store.rules
        user = rules.users.get(name)
        if user is None or not user.is_enabled or self._must_bind(user):
            return None
        checked = CheckedRequest(user, code, None, b"", connection, asks_right)
        if not rules.allows(user, rights, checked.address, self._rights.system_cluster):
            return None
        return self._grants.grant_with(checked, rights)

    def _process(self, route: Route, *, asks_right: bool) -> Process:
        code, header_type = route.code, route.header_type
        leaves, asks, runs_later = code == RequestCode.UNREGISTER_CLIENT, route.asks, route.runs_later

        def process(connection: Connection, command: Command) -> Answer:
            fields = command.header
            bodies: list[object] = []
            try:
                user = self.check(
                    code,
                    command,
                    host_of(connection.remote_address),
                    asks_right=asks_right,
                    # A look-up by a weak reference costs more than this one, and few requests are bound.
                    binding=self._bindings.get(connection) if fields and BOUND_SIGNATURE in fields else None,
                    on_read=bodies.append,
                )
            except RefusalError as error:
                return self._refuse(error, connection, command)
            except CodecError as error:
                raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"the body of the request: {error}") from None
            if header_type is not None:
                try:
                    command = with_typed_header(command, header_type)
                except HeaderFieldError as error:
                    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if asks:
                checked = CheckedRequest(user, code, fields, command.body, connection, asks_right)
                requester = self._grants.requester(checked, bodies[0] if bodies else None)
                answer = route.process(connection, command, requester)
            else:
                answer = route.process(connection, command)
                if leaves:
                    self.members.left(connection, (fields or {}).get("consumerGroup", ""))
            if runs_later or answer is HELD or type(answer) is InTurn:
                checked = CheckedRequest(user, code, fields, command.body, connection, asks_right)
                # A route that runs later has a copy of the body. A view of the buffer does not outlive this call.
                command.grant = self._grants.grant_in_turn(checked) if runs_later else self._grants.grant_of(checked)
            return answer

        return process

    def check(
        self,
        code: int,
        command: Command,
        address: str,
        *,
        asks_right: bool,
        binding: Binding | None = None,
        on_read: Callable[[RemotingSerializable], None] | None = None,
    ) -> User:
        """Check who signed a request, and if that user may send it; return the user.

        Args:
            code: code of the route that will serve it, whatever the request says.
            command: the request; its header has the texts of the ``extFields``, as they came.
            address: IP address of the peer.
            asks_right: check the rights, too.
            binding: nonce and counters of the connection, if its client has asked for them.
            on_read: called with the body, if it is decoded for the rights.

        Raises:
            AuthenticationError: It is not signed by a user who is enabled.
            AuthorizationError: The user lacks a right, or must bind its signatures.
            BrokerResponseError: The body is too long, or it names too much.
            CodecError: The body, which names what the request is about, cannot be read.
        """
        fields, body = command.header, command.body
        user = self._authenticator.authenticate(command, binding)
        if self._must_bind(user) and BOUND_SIGNATURE not in (fields or {}):
            raise _unbound(
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
        rights = self._rights.each(code, fields, body, on_read)
        rules.check(user.name, rights, address, self._rights.system_cluster)
        if request is not None:
            rules.grant(request)
        return user

    def _must_bind(self, user: User) -> bool:
        bound = self._checks.bound_users
        return bool(bound) and (user.name in bound or "*" in bound)

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
            raise _unbound(user, "Those of gRPC cannot be; call as another user")
        if self._checks.authorizes and not user.is_super:
            self._store.rules.check(user.name, rights(), address, self._rights.system_cluster)
        return user

    def _refuse(self, error: RefusalError, connection: Connection, command: Command) -> Answer:
        delay_s = self.refusals.add(error, command.code, connection.remote_address)
        if isinstance(error, AuthenticationError):
            connection.note_failure()
        refusal = BrokerResponseError(ResponseCode.NO_PERMISSION, str(error))
        if not delay_s:
            raise refusal from None
        # One-way requests have no answer that could wait.
        address = host_of(connection.remote_address)
        waiting = None if command.flag & FLAG_ONEWAY else self.refusals.late_answers.hold(address, delay_s, refusal)
        if waiting is None:
            connection.close_after_batch("too many of its requests had no valid credentials")
            raise refusal from None
        # A peer chooses how long its fields are, and the answer needs none of them.
        command.header, command.remark, command.body = None, None, b""
        waiting.add_done_callback(partial(_leave_out, command, delay_s))
        return cast("Answer", waiting)


def _unbound(user: User, advice: str) -> AuthorizationError:
    # No failed guess: the signature is right.
    text = f"User:{user.name}: boundSignatureUsers demands signatures that are bound to their connection. {advice}"
    return AuthorizationError(text, user.name)


def _leave_out(command: Command, delay_s: float, _waited: object) -> None:
    """Leave a wait out of the time of a request, so that it is no slow one."""
    command.received_at += delay_s
