"""Runs of signed requests: those that come together are checked together, then handled as if unsigned.

A template has every byte of the headers but for some values and the signatures (``codec.remoting.header_template``).
So what a signature covers is the same in all of them, but for these values and the body, and is put together from
pieces without decoding. The user, and the rights that each request needs, are those of the whole run.

What must hold is that no request is handled whose signature does not cover it as ``RequestGuard.check`` has it:

- A template exists only if the decoder finds each value, and no other, at the place that the template has found.
- The separators of properties are the only escapes that are resolved here. Requests with others leave the run.
- If one request fails, for whatever reason, all are left to the check of single ones, which has the answer.

Nothing is kept from one run to the next: a change of users or policies counts from the next run on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from typing import Final, Protocol

import msgspec

from rocketbroker.auth.authorization import Right
from rocketbroker.codec.remoting.bound_signature import BOUND_SIGNATURE
from rocketbroker.codec.remoting.frame import HeaderFieldError, with_typed_header
from rocketbroker.codec.remoting.handler import (
    Columns,
    Connection,
    ProcessRun,
    RunAnswers,
    RunAnswersFuture,
    RunHandler,
    RunKind,
)
from rocketbroker.codec.remoting.header_template import TEXT, Decode, VaryingField, make_template, names_on_wire
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader
from rocketbroker.codec.remoting.request_signature import ACCESS_KEY, SIGNATURE, signed_names

_SIGNATURE: Final = VaryingField(SIGNATURE, rb"[A-Za-z0-9+/]{27}=")
# A signed request takes twice as long alone, so that few of them are worth a run.
_FEWEST: Final = 3

# Returns the rights that requests with these ``extFields`` need; the varying fields are left out.
RightsOfRun = Callable[[Mapping[str, str]], Collection[Right]]


class CheckRun(Protocol):
    """Check of all requests of a run."""

    def __call__(
        self,
        name: str,
        contents: Iterable[bytes],
        signatures: Sequence[bytes],
        rights: Collection[Right],
        remote_address: str,
        /,
    ) -> bool:
        """Return true if each request may be served.

        Args:
            name: access key of all.
            contents: what each signature covers.
            signatures: the signatures, in base64.
            rights: rights that each of them needs.
            remote_address: ``ip:port`` of the peer.
        """


class SignedRuns:
    """Checks runs before another handler gets them (``RunLearner``).

    Args:
        handler: the other handler.
        header_type: the typed header of its requests.
        rights: returns the rights of requests, which depend neither on the varying fields nor on the body.
        check: checks a run.
    """

    def __init__(
        self, handler: RunHandler, header_type: type[CommandCustomHeader], rights: RightsOfRun, check: CheckRun
    ) -> None:
        self._handler = handler
        self._header_type = header_type
        self._rights = rights
        self._check = check
        names = names_on_wire(header_type)
        self._varying = [field._replace(name=names[field.name]) for field in handler.fields]
        self.fewest = _FEWEST

    def accepts(self, command: Command) -> bool:
        """Return true if requests like this one may come in runs."""
        if not command.header or not command.header.get(ACCESS_KEY) or BOUND_SIGNATURE in command.header:
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
        return None if template is None else RunKind(template, self._checked(template.command, fields))

    def _typed(self, command: Command) -> Command:
        return with_typed_header(msgspec.structs.replace(command), self._header_type)

    def _checked(self, one: Command, fields: Sequence[VaryingField]) -> ProcessRun:
        """Return the handler of requests that differ from one in some fields, whose columns are in this order."""
        given: dict[str, str] = one.header
        constant = {name: value for name, value in given.items() if name not in {field.name for field in fields}}
        name, rights, command = given[ACCESS_KEY], self._rights(constant), self._typed(one)
        pieces = list(_pieces(signed_names(given, one.version), constant, [field.name for field in fields]))
        columns_of_handler = [*map(fields.index, self._varying), len(fields)]
        signatures, texts = fields.index(_SIGNATURE), [at for at, field in enumerate(fields) if field.pattern is TEXT]
        check, handle = self._check, self._handler.process

        def process(
            connection: Connection, _command: Command, columns: Columns, bodies: Sequence[memoryview]
        ) -> RunAnswers | RunAnswersFuture | None:
            signed = list(columns)
            for at in texts:
                plain = _unescaped(signed[at])
                if plain is None:
                    return None
                signed[at] = plain
            each = [repeat(piece) if isinstance(piece, bytes) else signed[piece] for piece in pieces]
            contents = map(b"".join, zip(*each, bodies))  # noqa: B905 - constants are repeated without end
            if not check(name, contents, columns[signatures], rights, connection.remote_address):
                return None
            return handle(connection, command, [columns[at] for at in columns_of_handler], bodies)

        return process


def _pieces(names: Iterable[str], constant: Mapping[str, str], varying: Sequence[str]) -> Iterable[bytes | int]:
    """Yield the pieces of what is signed, the body aside: bytes that are the same in all, and columns of the others."""
    for is_constant, some in groupby(names, constant.__contains__):
        if is_constant:
            yield "".join(constant[name] for name in some).encode("utf-8", "replace")
        else:
            yield from map(varying.index, some)


def _unescaped(texts: Sequence[bytes]) -> list[bytes] | None:
    """Return the texts that stand in JSON for some properties, ``None`` if they have other escapes than separators."""
    joined = b"\0".join(texts).replace(rb"\u0001", b"\x01").replace(rb"\u0002", b"\x02")
    if b"\\" in joined:
        return None
    plain = joined.split(b"\0")
    return plain if len(plain) == len(texts) else None
