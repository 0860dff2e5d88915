"""Options of the public classes, checked where they enter.

``@checked`` before a constructor or a method, and ``CheckedStruct`` as the base of a struct, take the rules from the
annotations: types, ranges (``Seconds``, ``Count``), and the members of an Enum, which may be given by name. So there is
one rule for each option, the annotation that users read, and none is forgotten.
"""

import functools
import inspect
import math
import operator
import re
import reprlib
import types
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from numbers import Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from rocketbroker.client.core.errors import ClientError, OptionError

P = ParamSpec("P")
R = TypeVar("R")

Seconds = Annotated[float, msgspec.Meta(gt=0, title="a number of seconds")]
SecondsFrom0 = Annotated[float, msgspec.Meta(ge=0, title="a number of seconds")]
SecondsOrForever = Annotated[float, msgspec.Meta(ge=0, title="a number of seconds", extra={"endless": True})]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountFrom0 = Annotated[int, msgspec.Meta(ge=0)]

# A check returns the value to use in place of the one given, or raises _RefusedError with what to give.
Check = Callable[[object], object]


class _RefusedError(Exception):
    pass


class _Options(NamedTuple):
    """Parameters of a function by position, and the checks of all of them by name; ``open`` takes any other name."""

    positional: tuple[str, ...]
    checks: dict[str, Check]
    open: bool


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a method by its annotations, those of its options included.

    Raises:
        OptionError: an argument is unknown or has a value that is not allowed; raised by each call of the method.
    """
    options: _Options | None = None

    def check(owner: object, values: tuple[Any, ...], given: dict[str, Any]) -> tuple[Iterable[Any], dict[str, Any]]:
        nonlocal options
        if options is None:
            options = _options_of(function)
        name = type(owner).__name__
        if function.__name__ != "__init__":
            name = f"{name}.{function.__name__}"
        checks = options.checks
        for unknown in () if options.open else given.keys() - checks.keys():
            raise OptionError(_unknown(name, unknown, checks))
        new = [_check(name, of, checks[of], value) for of, value in zip(options.positional, values, strict=False)]
        named = {of: _check(name, of, checks[of], value) if of in checks else value for of, value in given.items()}
        return (*new, *values[len(new) :]), named

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(owner: object, *values: Any, **given: Any) -> Any:
            values, given = check(owner, values, given)  # type: ignore[assignment]
            return await function(owner, *values, **given)  # type: ignore[arg-type]

        return cast("Callable[P, R]", call_async)

    @functools.wraps(function)
    def call(owner: object, *values: Any, **given: Any) -> R:
        values, given = check(owner, values, given)  # type: ignore[assignment]
        return function(owner, *values, **given)  # type: ignore[arg-type]

    return cast("Callable[P, R]", call)


if TYPE_CHECKING:
    from msgspec import StructMeta as _StructMeta
else:
    _StructMeta = type(msgspec.Struct)  # it has a name in newer versions only


class _CheckedMeta(_StructMeta):
    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805 - the instances are classes
            try:
                return super().__call__(*values, **fields)
            except TypeError as error:
                for name in fields.keys() - set(cls.__struct_fields__):
                    raise cls.error(_unknown(cls.__name__, name, cls.__struct_fields__)) from error
                raise


class CheckedStruct(msgspec.Struct, frozen=True, metaclass=_CheckedMeta):
    """Struct whose fields are checked by their annotations when it is made.

    Raises:
        OptionError: a field is unknown or has a value that is not allowed; ``error`` of a subclass may be another one.
    """

    error: ClassVar[type[ClientError]] = OptionError

    def __post_init__(self) -> None:
        """Check the fields."""
        for name, check in _checks_of_struct(type(self)).items():
            value = getattr(self, name)
            try:
                new = check(value)
            except _RefusedError as refused:
                raise self.error(_refusal(type(self).__name__, name, value, refused)) from None
            if new is not value:
                msgspec.structs.force_setattr(self, name, new)


@functools.cache
def _checks_of_struct(struct: type) -> dict[str, Check]:
    hints = get_type_hints(struct, include_extras=True)
    return {name: _check_of(hints[name]) for name in struct.__struct_fields__}  # type: ignore[attr-defined]


def _options_of(function: Callable[..., object]) -> _Options:
    hints = get_type_hints(function, include_extras=True)
    parameters = [*inspect.signature(function).parameters.values()][1:]
    checks: dict[str, Check] = {}
    positional: list[str] = []
    is_open = False
    for parameter in parameters:
        hint = hints.get(parameter.name, Any)
        if parameter.kind is not parameter.VAR_KEYWORD:
            checks[parameter.name] = _check_of(hint)
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                positional.append(parameter.name)
        elif get_origin(hint) is Unpack:
            (table,) = get_args(hint)
            each = get_type_hints(table, include_extras=True)
            checks.update({name: _check_of(each[name]) for name in each})
        else:
            is_open = True
    return _Options(tuple(positional), checks, is_open)


def _check(owner: str, name: str, check: Check, value: object) -> object:
    try:
        return check(value)
    except _RefusedError as refused:
        raise OptionError(_refusal(owner, name, value, refused)) from None


def _refusal(owner: str, name: str, value: object, refused: _RefusedError) -> str:
    is_secret = "secret" in name or "token" in name
    shown = f"of type {type(value).__name__}" if is_secret else reprlib.repr(value)
    return f"{owner}: {name} is {shown}; {refused}"


def _unknown(owner: str, name: str, known: Collection[str]) -> str:
    return f"{owner} has no argument {name}; {_nearest(name, known) or 'there are ' + ', '.join(known)}"


def _plain(name: str) -> str:
    """Return a name without case and separators: ``pullBatchSize`` is near to ``pull_batch_size``."""
    return re.sub(r"[\s_-]", "", name).lower()


def _nearest(text: str, known: Iterable[str]) -> str:
    """Return a question that names the known name nearest to a text, if one is near."""
    names = {_plain(name): name for name in known}
    plain = _plain(text)
    parts = [name for name in names if len(plain) > 3 and plain in name]  # ``retry_times`` is a part of one name
    near = get_close_matches(plain, names, 1) or (parts if len(parts) == 1 else [])
    return f"did you mean {names[near[0]]}?" if near else ""


# -- checks by annotation


def _check_of(hint: Any) -> Check:  # noqa: PLR0911 - a branch for each kind of annotation
    """Return the check for an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _in_range(_check_of(arguments[0]), arguments[1])
    if origin in {Union, types.UnionType}:
        return _any_of([_check_of(each) for each in arguments])
    if origin is Literal:
        return _literal(arguments)
    kind: Any = origin or hint
    if not isinstance(kind, type) or kind is object:
        return lambda value: value
    if origin is abc.Callable:
        return _callable
    if issubclass(kind, Mapping):
        return _instance(kind, "a mapping")
    if issubclass(kind, tuple) and arguments[1:] == (...,):
        arguments = arguments[:1]
    if issubclass(kind, Iterable) and len(arguments) == 1:
        return _items(_check_of(arguments[0]))
    if issubclass(kind, Enum):
        return _member(kind)
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    return _CHECKS.get(kind) or _instance(kind, f"a {kind.__name__}")


def _bool(value: object) -> object:
    if not isinstance(value, bool):
        raise _RefusedError("give True or False")
    return value


def _int(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return operator.index(value)  # a number of numpy
    raise _RefusedError(f"give a whole number{_without_quotes(value)}")


def _float(value: Any) -> object:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:  # noqa: PLR0124 - nan
        raise _RefusedError(f"give a number{_without_quotes(value)}")
    if type(value) in {int, float}:
        return value
    return float(value)  # a number of numpy


def _without_quotes(value: object) -> str:
    is_number = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value)
    return f", {value} without quotes" if is_number else ""


def _path(value: object) -> object:
    if isinstance(value, str):
        return Path(value)
    return _instance(Path, "a path")(value)


def _instance(kind: type, name: str) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, kind):
            raise _RefusedError(f"give {name}")
        return value

    return check


_CHECKS: dict[type, Check] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _instance(str, "text"),
    bytes: _instance(bytes | bytearray | memoryview, 'bytes, such as b"text" or text.encode()'),  # type: ignore[arg-type]
    types.NoneType: _instance(types.NoneType, "None"),
    Path: _path,
}


def _in_range(check: Check, meta: msgspec.Meta) -> Check:
    """Bound a number; the noun and the limits of its annotation say what to give."""
    noun = meta.title or "a whole number"
    endless = (meta.extra or {}).get("endless", False)
    limits = " to ".join(
        f"{word}{limit}"
        for word, limit in (("from ", meta.ge), ("above ", meta.gt), ("", meta.le))
        if limit is not None
    )
    if endless:
        limits += ", or math.inf"

    def bounded(value: object) -> object:
        try:
            number: Any = check(value)
        except _RefusedError:
            if meta.description:
                raise _RefusedError(f"give {meta.description}") from None
            raise _RefusedError(f"give {noun} {limits}{_without_quotes(value)}") from None
        if (
            (number == math.inf and not endless)
            or (meta.ge is not None and number < meta.ge)
            or (meta.gt is not None and number <= meta.gt)
            or (meta.le is not None and number > meta.le)
        ):
            raise _RefusedError(f"give {noun} {limits}")
        return number

    return bounded


def _any_of(checks: list[Check]) -> Check:
    takes_none = _CHECKS[types.NoneType] in checks

    def check(value: object) -> object:
        if value is None and takes_none:
            return None
        advice: list[str] = []
        for each in checks:
            try:
                return each(value)
            except _RefusedError as refused:
                advice.append(str(refused))
        raise _RefusedError(", or ".join([advice[0], *(text.removeprefix("give ") for text in advice[1:])]))

    return check


def _literal(known: tuple[Any, ...]) -> Check:
    names = {_plain(str(value)): value for value in known}

    def check(value: object) -> object:
        if isinstance(value, str) and _plain(value) in names:
            return names[_plain(value)]
        raise _RefusedError(_choice(value, [str(each) for each in known]))

    return check


def _member(kind: type[Enum]) -> Check:
    """Take a member, its name in any case, or the part of the name that tells it from the others."""
    names = {_plain(name): member for name, member in kind.__members__.items()}
    for name, member in kind.__members__.items():
        names.setdefault(_plain(name.removeprefix("CONSUME_FROM_").removesuffix("_OFFSET")), member)

    def check(value: object) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, str) and _plain(value) in names:
            return names[_plain(value)]
        raise _RefusedError(_choice(value, list(kind.__members__)))  # the names that RocketMQ has

    return check


def _choice(value: object, known: list[str]) -> str:
    return (isinstance(value, str) and _nearest(value, known)) or f"give one of {', '.join(known)}"


def _callable(value: object) -> object:
    if not callable(value):
        raise _RefusedError("give a function")
    return value


def _items(item: Check) -> Check:
    """Take a list, a tuple or another iterable of items, but no text, whose items would be its characters."""

    def check(value: object) -> object:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise _RefusedError("give a list")
        try:
            return tuple(item(each) for each in value)
        except _RefusedError as refused:
            raise _RefusedError(f"in this list, {refused}") from None

    return check


def _protocol(kind: type) -> Check:
    """Take an object with all members of a Protocol."""
    classes = [each for each in kind.__mro__ if getattr(each, "_is_protocol", False)]
    names = {name for each in classes for name in (*vars(each), *each.__annotations__) if not name.startswith("_")}

    def check(value: object) -> object:
        missing = sorted(name for name in names if not hasattr(value, name))
        if missing or isinstance(value, type):
            raise _RefusedError(f"give an object with {', '.join(missing or sorted(names))} ({kind.__name__})")
        return value

    return check
