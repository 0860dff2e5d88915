"""Runs of signed requests: those that come together are checked together, then handled as if unsigned.

A template has every byte of the headers but for some values and the signatures (``codec.remoting.header_template``).
So what a signature covers is the same in all of them, but for these values and the body, and is put together from
pieces. The rights that each request needs are those of the first. A request that comes alone takes the same way, up to
its handler: it needs neither its raw fields nor a look at the rights.

What must hold is that no request is handled whose signature does not cover it as ``RequestGuard.check`` has it:

- A template exists only if the decoder finds each value, and no other, at the place that the template has found.
- Texts are decoded together, as strings of one JSON array. None has a quotation mark. An odd number of backslashes at
  the end of a text escapes its closing quotation mark. From there on texts stand outside of strings, where a backslash
  is no JSON. So the number of quotation marks stays odd, and the last string never ends.
- If one request fails, for whatever reason, all are left to the check of single ones, which has the answer. So a wrong
  signature may be computed three times: in the run, alone by the template, and in the full check. Late refusals bound
  that: beyond ``late_refusals.MAX_OF_ADDRESS`` answers that wait, a wrong signature costs its connection.

That a user may send is decided once for a template and an address, and again when users or policies have changed. The
grant of that decision goes with each request that comes alone, for a handler that holds it or answers it in turn.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rocketbroker.auth.authorization import Right
from rocketbroker.auth.grants import Grant
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE
from rocketbroker.codec.remoting.frame import HeaderFieldError, with_typed_header
from rocketbroker.codec.remoting.handler import (
    Columns,
    Connection,
    DecodeOne,
    ProcessRun,
    Route,
    RunAnswers,
    RunAnswersFuture,
    RunHandler,
    RunKind,
    Shortcut,
)
from rocketbroker.codec.remoting.header_template import (
    TEXT,
    Decode,
    HeaderTemplate,
    VaryingField,
    make_template,
    names_on_wire,
)
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_names

_SIGNATURE: Final = VaryingField(SIGNATURE, rb"[A-Za-z0-9+/]{27}=")
_decode_texts: Final = msgspec.json.Decoder(list[str]).decode
_decode_values: Final = msgspec.json.Decoder(list).decode

# Returns the rights that requests with these ``extFields`` need; the varying fields are left out.
RightsOfRun = Callable[[Mapping[str, str]], Collection[Right]]


class Signer:
    """User that signs the requests of a template.

    Args:
        version: returns the version of the rules in force. What was decided by another is dropped.
        find_key: returns the key that the user's signatures are checked by.
        decide: returns the grant of the requests from a connection, ``None`` if the user may not send them.
    """

    __slots__ = ("_decide", "_find_key", "_grant", "_granted_address", "_key", "_version", "_version_seen")

    _key: SigningKey

    def __init__(
        self,
        version: Callable[[], int],
        find_key: Callable[[], SigningKey],
        decide: Callable[[Connection], Grant | None],
    ) -> None:
        self._version = version
        self._find_key = find_key
        self._decide = decide
        self._version_seen: int | None = None
        self._granted_address: str | None = None
        self._grant: Grant | None = None

    def grant(
        self, connection: Connection, content: ReadableBuffer, body: ReadableBuffer, signature: bytes
    ) -> Grant | None:
        """Return the grant of a request; ``None`` if its signature is wrong or the user may not send it.

        The signature comes first, so that the time tells a stranger nothing about the rights of a user.
        """
        if not self._current_key().verifies_content(content, body, signature):
            return None
        return self._grant if connection.remote_address == self._granted_address else self._decided(connection)

    def grant_all(
        self, connection: Connection, contents: Iterable[ReadableBuffer], signatures: Sequence[bytes]
    ) -> Grant | None:
        """Return the grant of all requests of a run, as ``grant`` does; the contents include the bodies."""
        if not self._current_key().verify_all(contents, signatures):
            return None
        return self._grant if connection.remote_address == self._granted_address else self._decided(connection)

    def _current_key(self) -> SigningKey:
        """Return the key of the rules in force; forget what was decided by others."""
        version = self._version()
        if version != self._version_seen:
            self._version_seen, self._key, self._granted_address = version, self._find_key(), None
        return self._key

    def _decided(self, connection: Connection) -> Grant | None:
        grant = self._decide(connection)
        if grant is not None:
            self._granted_address, self._grant = connection.remote_address, grant
        return grant


class _Signed(NamedTuple):
    """Requests that fit a template.

    Attributes:
        command: one of them.
        fields: the fields in which they differ, in the order of their columns.
        signer: who signs them.
        pieces: what a signature covers before the body: bytes that are the same in all, and columns of the others.
        signature: column of the signatures.
    """

    command: Command
    fields: Sequence[VaryingField]
    signer: Signer
    pieces: Sequence[bytes | int]
    signature: int


class SignedRuns:
    """Checks runs before another handler gets them (``RunLearner``).

    Args:
        route: the route without access control, which has a typed header.
        handler: its handler of runs.
        rights: returns the rights of requests, which depend neither on the varying fields nor on the body.
        signer: returns the user of a name who signs requests that need some rights.

    Raises:
        ValueError: The route limits bodies more than a frame does, or runs later. The check of requests that fit a
            template skips that limit, and hands on bodies as views of the receive buffer.
    """

    learns_alone = True

    def __init__(
        self,
        route: Route,
        handler: RunHandler,
        rights: RightsOfRun,
        signer: Callable[[str, Collection[Right]], Signer],
    ) -> None:
        assert route.header_type is not None
        if not route.takes_large_bodies or route.runs_later:
            raise ValueError(
                f"request code {route.code}: a route with runs must take large bodies and be no coroutine function"
            )
        self._route = route
        self._handler = handler
        self._header_type = route.header_type
        self._rights = rights
        self._signer = signer
        names = names_on_wire(route.header_type)
        self._varying = [field._replace(name=names[field.name]) for field in handler.fields]
        self.fewest = handler.fewest

    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        fields = command.header
        # No one-way request joins a run, as it has no answer. To see that takes no typed header.
        if command.flag or not fields or not fields.get(ACCESS_KEY) or BOUND_SIGNATURE in fields:
            return False
        try:
            return self._handler.accepts(self._typed(command))
        except HeaderFieldError:
            return False

    def learn(self, header: bytes, command: Command, decode: Decode) -> RunKind | None:
        """Return the kind of runs that a request belongs to, whether or not its own signature is right."""
        # Clients put the signature before or behind the other fields.
        fields = sorted([*self._varying, _SIGNATURE], key=lambda field: header.find(b'"%b":"' % field.name.encode()))
        template = make_template(header, command, fields, decode)
        return None if template is None else self._kind(template, fields)

    def _typed(self, command: Command) -> Command:
        return with_typed_header(replace(command), self._header_type)

    def _kind(self, template: HeaderTemplate, fields: Sequence[VaryingField]) -> RunKind:
        """Return the kind of the requests that fit a template, whose varying fields are in this order."""
        given: dict[str, str] = template.command.header
        constant = {name: value for name, value in given.items() if name not in {field.name for field in fields}}
        signer = self._signer(given[ACCESS_KEY], self._rights(constant))
        pieces = list(_pieces(signed_names(given, template.command.version), constant, [each.name for each in fields]))
        signed = _Signed(self._typed(template.command), fields, signer, pieces, fields.index(_SIGNATURE))
        shortcut = Shortcut(template.fullmatch, self._checked_one(signed), self._route)
        return RunKind(template, self._checked_run(signed), shortcut)

    def _checked_run(self, requests: _Signed) -> ProcessRun:
        """Return the handler of a run."""
        command, fields, signer, pieces, signature = requests
        columns_of_handler = [*map(fields.index, self._varying), len(fields)]
        texts = [at for at, field in enumerate(fields) if field.pattern is TEXT]
        handle = self._handler.process

        def process(
            connection: Connection, _command: Command, columns: Columns, bodies: Sequence[memoryview]
        ) -> RunAnswers | RunAnswersFuture | None:
            signed = list(columns)
            try:
                for at in texts:
                    signed[at] = _decoded(signed[at])
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return None
            signed_pieces = [signed[each] if isinstance(each, int) else repeat(each) for each in pieces]
            contents = map(b"".join, zip(*signed_pieces, bodies))  # noqa: B905 - constants are repeated without an end
            if signer.grant_all(connection, contents, columns[signature]) is None:
                return None
            return handle(connection, command, [columns[at] for at in columns_of_handler], bodies)

        return process

    def _checked_one(self, requests: _Signed) -> DecodeOne:
        """Return the decoder of a request that comes alone."""
        command, fields, signer, pieces, signature = requests
        copy_header = command.header.__copy__
        content = b"".join(b"%b" if isinstance(each, int) else each.replace(b"%", b"%%") for each in pieces)
        signed_of = itemgetter(*[each for each in pieces if isinstance(each, int)])
        # All values are decoded by one call, as items of a JSON array.
        read = [fields.index(each) for each in self._varying]
        slots = [b'"%b"' if each.pattern is TEXT else b"%b" for each in self._varying]
        array, values_of = b"[%b]" % b",".join([*slots, b"%b"]), itemgetter(*read, -1)
        names = [(number, field.name) for number, field in enumerate(self._handler.fields)]
        texts = [(number, at) for number, at in enumerate(read) if fields[at].pattern is TEXT]

        def decode(connection: Connection, values: Sequence[bytes], body: memoryview) -> Command | None:
            try:
                decoded = _decode_values(array % values_of(values))
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return None
            signed = list(values)
            for number, at in texts:
                signed[at] = decoded[number].encode("utf-8", "replace")
            grant = signer.grant(connection, content % signed_of(signed), body, values[signature])
            if grant is None:
                return None
            typed = copy_header()
            for number, name in names:
                setattr(typed, name, decoded[number])
            return replace(command, header=typed, opaque=decoded[-1], body=body, grant=grant)

        return decode


def _pieces(names: Iterable[str], constant: Mapping[str, str], varying: Sequence[str]) -> Iterable[bytes | int]:
    """Yield the pieces of what is signed, the body aside: bytes that are the same in all, and columns of the others."""
    for is_constant, some in groupby(names, constant.__contains__):
        if is_constant:
            yield "".join(constant[name] for name in some).encode("utf-8", "replace")
        else:
            yield from map(varying.index, some)


def _decoded(texts: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of texts that stand in JSON between quotation marks, and have none.

    Raises:
        msgspec.MsgspecError: One of them is no text.
        UnicodeError: One of them is not UTF-8, or has half a surrogate pair.
    """
    return list(map(str.encode, _decode_texts(b'["%b"]' % b'","'.join(texts))))
