"""Options of a Spark format, as a query gives them: texts, checked and converted on use."""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from rocketbroker.common.errors import ConfigError

T = TypeVar("T")

_NUMBER: Final = re.compile(r"([0-9]{1,18}) ?([a-z]*)")
_MS_UNITS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTE_UNITS: Final = {"": 1, "b": 1} | {
    unit + suffix: 1 << shift for unit, shift in (("k", 10), ("m", 20), ("g", 30)) for suffix in ("", "b", "ib")
}

# Options of Spark's Kafka source that our formats lack, in lower case, with what to use instead.
_INSTEAD: Final = {
    "assign": "name the topics by subscribe, and queues by startingOffsets and endingOffsets",
    "endingoffsetsbytimestamp": "give endingTimestamp, as JSON by topic if topics differ",
    "groupidprefix": "a query needs no consumer group, since its checkpoint has the offsets",
    "includeheaders": "the column properties has them; includeProperties keeps some",
    "kafka.group.id": "a query needs no consumer group, since its checkpoint has the offsets",
    "maxrecordsperpartition": "give minPartitions",
    "startingoffsetsbytimestamp": "give startingTimestamp, as JSON by topic if topics differ",
    "startingoffsetsbytimestampstrategy": "a time after the last message is the end of the queue",
}
_OF_A_CLIENT: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.")


def instead_of(name: str) -> str:
    """Return what to use instead of an option of Spark's Kafka source, in any case; empty for another option."""
    name = name.lower()
    if name in _INSTEAD:
        return _INSTEAD[name]
    return "it configures a Kafka client" if name.startswith(_OF_A_CLIENT) else ""


class OptionValues:
    """Options that a query gives to a format; names may be written in any case.

    Args:
        form: name of the format.
        meanings: meaning of each option by its name.
        options: the given options.

    Raises:
        ConfigError: an option is unknown.
    """

    def __init__(self, form: str, meanings: Mapping[str, str], options: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in meanings}
        for name in options:
            if name.lower() not in names:
                advice = instead_of(name)
                raise ConfigError(
                    f'format("{form}") has no option {name!r}{advice and f": {advice}"}; '
                    f"its options are {', '.join(meanings)}"
                )
        self._meanings = meanings
        self.given = {names[name.lower()]: value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def text(self, name: str, default: str = "") -> str:
        """Return a text as given."""
        return self.given.get(name, default)

    def names(self, name: str) -> frozenset[str]:
        """Return the names that commas separate."""
        return frozenset(filter(None, map(str.strip, self.text(name).split(","))))

    def json(self, name: str, kind: type[T], *, secret: bool = False) -> T:
        """Return a value written as JSON; errors do not repeat one that is ``secret``."""
        try:
            return msgspec.json.decode(self.given[name], type=kind)
        except msgspec.MsgspecError as error:
            what = "is invalid" if secret else f"is {self.given[name]!r}"
            raise ConfigError(f"{name} {what} ({self._meanings[name]}): {error}") from error

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """Return a number, ``least`` or more."""
        return self._number(name, default, {"": 1}, least)

    def bytes(self, name: str, default: int) -> int:
        """Return a number of bytes above 0, which may have a unit, as in Spark's own settings."""
        return self._number(name, default, _BYTE_UNITS)

    def seconds(self, name: str, default: float) -> float:
        """Return a time above 0, in ms unless it has a unit, as in Spark's own settings."""
        return self._number(name, 0, _MS_UNITS) / 1000 or default

    def _number(self, name: str, default: int, units: Mapping[str, int], least: int = 1) -> int:
        if name not in self.given:
            return default
        found = _NUMBER.fullmatch(self.given[name].strip().lower())
        unit = units.get(found[2]) if found else None
        if found is None or unit is None or int(found[1]) < least:
            wanted = f"a number above {least - 1}" if least else "a number"
            raise ConfigError(f"{name} is {self.given[name]!r}; give {wanted} ({self._meanings[name]})")
        return int(found[1]) * unit

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false."""
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> str:
        """Return one of ``values``, in lower case."""
        text = self.given.get(name, default).lower()
        if text not in values:
            raise ConfigError(f"{name} is {self.given[name]!r}; give {' or '.join(values)} ({self._meanings[name]})")
        return text
