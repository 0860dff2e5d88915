"""Root directory of a broker's store, local or remote: an absolute path, or an address."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rocketbroker.common.errors import ConfigError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Hadoop's names for S3.
_HADOOP_S3: Final = {"s3a", "s3n"}


@dataclass(frozen=True, slots=True, repr=False)
class StoreRoot:
    """A broker's name in the column ``broker``, and its store: an absolute path, or an address with "://"."""

    broker: str
    uri: str

    @property
    def is_local(self) -> bool:
        """True if the store is a local directory."""
        return "://" not in self.uri

    @property
    def shown(self) -> str:
        """The place without credentials and query, which may be secret."""
        if self.is_local:
            return self.uri
        address = urlsplit(self.uri)
        user, at, host = address.netloc.rpartition("@")
        # In abfs://container@account the first part is not a user.
        place = host if at and ":" in user else address.netloc
        return f"{address.scheme}://{place}{address.path}".rstrip("/")

    def __repr__(self) -> str:
        return f"StoreRoot(broker={self.broker!r}, uri={self.shown!r})"


def place_of(target: str | Path) -> StoreRoot:
    """Return a place to write to, a path or an address, as a root without a broker's name."""
    return StoreRoot("", address_of(str(target)))


def address_of(place: str) -> str:
    """Return a place as given as an absolute path or an address."""
    found = _SCHEME.match(place)
    if found is None:
        return _local(place)
    try:
        parts = urlsplit(place)
    except ValueError as error:  # without the address: it may hold credentials
        raise ConfigError(f"an address that begins with {found[0]} is invalid: {error}") from error
    if not parts.netloc and not parts.path.strip("/"):
        raise ConfigError(f"{found[0]} names no store; add a bucket or host, and a folder")
    if "*" in parts.netloc.rpartition("@")[2]:
        raise ConfigError(f"{StoreRoot('', place).shown}: a bucket or host cannot be a pattern; name it")
    if found[1].lower() in _HADOOP_S3:
        return "s3" + place[len(found[1]) :]
    if found[1].lower() != "file":
        return place
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ConfigError(f"{place} names no local directory; use file:///path")
    return _local(unquote(parts.path))


def _local(place: str) -> str:
    if "\0" in place:
        raise ConfigError(f"{place!r} is not a directory: a path cannot contain a zero byte")
    return str(Path(place).absolute())
