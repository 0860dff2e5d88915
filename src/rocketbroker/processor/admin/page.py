"""One page of a table by name (subTopicConfigTable, subGroupTable)."""

from collections.abc import Mapping
from typing import TypeVar

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError

# splitMetadataSize of RocketMQ: no page has more.
MAX_PAGE = 2000

T = TypeVar("T")


def page_of(
    table: Mapping[str, T], version: DataVersion, seen_version: str | None, first: int | None, size: int | None
) -> dict[str, T]:
    """Return the entries from number ``first`` on, sorted; the whole table if the request named no page.

    Args:
        table: all entries.
        version: version of the table.
        seen_version: version of the table when the client got its first page, as JSON. The pages restart if the version
            has changed, so that a client never joins pages of different tables.
        first: number of the first entry wanted.
        size: most entries wanted.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if a field is out of range or ``seen_version`` is not a DataVersion.
    """
    if seen_version is None and first is None and size is None:
        return dict(table)
    start = _checked("first entry", first or 0, 0) if _unchanged(version, seen_version) else 0
    count = min(_checked("page size", MAX_PAGE if size is None else size, 1), MAX_PAGE)
    return {name: table[name] for name in sorted(table)[start : start + count]}


def _checked(what: str, value: int, low: int) -> int:
    if value < low:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"the {what} {value} is illegal; use {low} or more")
    return value


def _unchanged(version: DataVersion, seen_version: str | None) -> bool:
    if not seen_version or not seen_version.strip():
        return False
    try:
        return DataVersion.decode(seen_version.encode()) == version
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"dataVersion of the request: {error}") from None
