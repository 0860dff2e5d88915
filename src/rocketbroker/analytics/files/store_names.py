"""Stores to read: one root directory per broker, local or remote.

root  := [broker "="] place
place := path of a directory | scheme "://" …        s3 (s3a), gs, hdfs, viewfs, abfs, file

The place is a store's root or its commit-log directory. A path, and that of an address, may have the wildcards of the
shell; in an address ``?`` begins the query, and ``%2A``, ``%3F`` and ``%5B`` are characters of a name. The query may
have options of the object store (endpoint, region), as pyarrow accepts them; its environment variables apply as well.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from rocketbroker.analytics.files.store_files import open_folder
from rocketbroker.analytics.files.store_root import StoreRoot, address_of
from rocketbroker.common.errors import ConfigError

_NAMED: Final = re.compile(r"([^/=:?#,\s]+)=(.+)", re.DOTALL)
_WILDCARD: Final = re.compile(r"[*?[]")
# ``*``, ``?`` and ``[`` as characters of a name in an address.
_QUOTED_WILDCARD: Final = re.compile("%(?:2A|3F|5B)", re.IGNORECASE)
_COMMIT_LOG: Final = "commitlog"
# Schemes that are aliases of another one.
_SAME_SCHEME: Final = {"gcs": "gs", "abfss": "abfs"}
# Options in the query of an address, and variables, that name the host of an object store; the first one wins.
_ENDPOINTS: Final = ("endpoint_override", "blob_storage_authority", "dfs_storage_authority")
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

#: Names of stores: a place, ``NAME=PLACE``, or several of them in a list or separated by commas.
Stores = str | Path | StoreRoot | Sequence[str | Path | StoreRoot]


def store_roots(stores: Stores) -> list[StoreRoot]:
    """Return the roots that ``stores`` names, in their order.

    A broker without a name is named after the last folder of its place, whatever other stores are named: a checkpoint
    of a stream has the names, and a store that is added later must not change them. A Path, and text in a list, is
    never split at commas. Stores that a pattern matches are named after the first folder that has a wildcard:
    ``/data/*/store`` gives ``a`` for ``/data/a/store``.

    Raises:
        ConfigError: no store is named or matched, an address is invalid, or a name or place is repeated.
    """
    parsed = [
        found
        for one in _parted(stores)
        for found in (_expanded(*_parse(one)) if isinstance(one, str) else [_parse(one)])
    ]
    if not parsed:
        raise ConfigError("no store is named; give a directory, an address or NAME=PLACE")
    _refuse_same_place([uri for _, uri in parsed])
    roots = [StoreRoot(name or _default_name(uri), uri) for name, uri in parsed]
    seen: dict[str, StoreRoot] = {}
    for root in roots:
        other = seen.setdefault(root.broker, root)
        if other is not root:
            raise ConfigError(
                f"{other.shown} and {root.shown} are both called {root.broker}; give each broker a name of its own, "
                f"such as {root.broker}-2={root.shown}"
            )
    return roots


def _parted(stores: Stores) -> list[str | Path | StoreRoot]:
    if isinstance(stores, str):
        return [part.strip() for part in stores.split(",")]
    if isinstance(stores, (Path, StoreRoot)):
        return [stores]
    return list(stores)


def _parse(one: str | Path | StoreRoot) -> tuple[str, str]:
    """Return the name, empty if there is none, and the place."""
    if isinstance(one, StoreRoot):
        return one.broker, one.uri
    if isinstance(one, Path):
        return "", str(one.absolute())
    named = _NAMED.fullmatch(one)
    name, place = (named[1], named[2].strip()) if named else ("", one.strip())
    if not place:
        raise ConfigError(f"{one!r} names no store; give a directory, an address or NAME=PLACE")
    return name, address_of(place)


def _expanded(name: str, place: str) -> list[tuple[str, str]]:
    """Return the names and places that a pattern matches, in order. A path that exists is not a pattern."""
    shown = StoreRoot("", place).shown
    path, begin, options = place.partition("?") if "://" in place else (place, "", "")
    parts, first = path.split("/"), 3 if "://" in place else 0
    at = next((number for number in range(first, len(parts)) if _WILDCARD.search(parts[number])), None)
    if at is None or ("://" not in place and Path(place).exists()):
        return [(name, place)]
    if name:
        raise ConfigError(f"{name}={shown}: a pattern names its stores itself; remove {name}=")
    if "://" in place:
        base = "/".join(parts[:at])
        folders = _remote_folders(StoreRoot("", base + begin + options), [part for part in parts[at:] if part])
        found = [(each[0], f"{base}/{quote('/'.join(each))}{begin}{options}") for each in folders]
    else:
        paths = sorted(str(each) for each in Path("/").glob(place.lstrip("/")) if each.is_dir())
        found = [(each.split("/")[at], each) for each in paths if not each.split("/")[at].startswith(".")]
    if not found:
        raise ConfigError(f"{shown} matches no directory; name one that exists")
    return found


def _remote_folders(base: StoreRoot, pattern: Sequence[str]) -> list[list[str]]:
    """Return the names of folders, one below the other from ``base`` on, that match a pattern."""
    folder, found = open_folder(base), list[list[str]]([[]])
    for part in pattern:
        name = unquote(part)
        if _WILDCARD.search(part):
            listed = ((each, folder.folders("/".join(each))) for each in found)
            escaped = unquote(_QUOTED_WILDCARD.sub(lambda quoted: f"[{unquote(quoted[0])}]", part))
            found = [[*each, one] for each, names in listed for one in names if _matches(one, escaped)]
        else:
            found = [[*each, name] for each in found if folder.is_folder("/".join([*each, name]))]
    return found


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _refuse_same_place(uris: list[str]) -> None:
    seen: dict[str, str] = {}
    for uri in uris:
        root = StoreRoot("", uri)
        place, shown = _place(root), root.shown if root.is_local else unquote(root.shown)
        if place in seen:
            what = f"the store {shown} is named twice"
            if seen[place] != shown:
                what = f"{seen[place]} and {shown} are one store"
            raise ConfigError(f"{what}, so its messages would count twice")
        seen[place] = shown


def _place(root: StoreRoot) -> str:
    """Return the canonical place of a store, the same for all names of the same files."""
    if root.is_local:  # by a link, "..", or as its commit-log directory
        return os.path.realpath(root.uri).removesuffix(f"/{_COMMIT_LOG}")
    address = urlsplit(root.shown)
    scheme = _SAME_SCHEME.get(address.scheme, address.scheme)
    folders = [unquote(part) for part in address.path.split("/") if part]
    path = "/".join(folders[:-1] if folders[-1:] == [_COMMIT_LOG] else folders)
    return f"{scheme}://{address.netloc}/{path} {_endpoint(root.uri, scheme)}"


def _endpoint(uri: str, scheme: str) -> str:
    """Return the host of an object store, "" for the cloud's own: two hosts may have buckets of the same name."""
    query = dict(parse_qsl(urlsplit(uri).query))
    given = [query[name] for name in _ENDPOINTS if query.get(name)]
    if scheme == "s3":
        given += [os.environ[name] for name in _S3_ENDPOINTS if os.environ.get(name)]
    return given[0].rpartition("://")[2].rstrip("/").lower() if given else ""


def _default_name(uri: str) -> str:
    """Return the last folder of a place, or its host, without the commit-log directory at its end."""
    root = StoreRoot("", uri)
    path = urlsplit(root.shown) if not root.is_local else None
    parts = [path.netloc, *path.path.split("/")] if path else uri.split("/")
    folders = [part for part in parts if part]
    if folders[-1:] == [_COMMIT_LOG]:
        folders.pop()
    return folders[-1] if folders else "store"
