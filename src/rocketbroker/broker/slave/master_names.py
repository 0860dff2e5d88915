"""Names that a slave may delete from its copy of a master's table."""

import logging
from collections.abc import Collection, Container

from rocketbroker.codec.remoting.bodies.data_version import DataVersion

log = logging.getLogger(__name__)


class MasterNames:
    """Tells what a master deleted from what it lost.

    A name is deleted if the master had it and has it no longer. A master whose version went back, or that has none of a
    slave's own entries at its first request, was restarted without its tables: then nothing is deleted.

    Args:
        title: the table in log lines, such as ``topics``.
        built_in: names that each broker has by itself, and that are never deleted.
    """

    def __init__(self, title: str, built_in: Container[str] = ()) -> None:
        self._title = title
        self._built_in = built_in
        self._names: frozenset[str] = frozenset()
        self._version: DataVersion | None = None
        self._keeps = False

    def gone(
        self,
        own: Collection[str],
        own_version: DataVersion,
        names: Collection[str],
        version: DataVersion,
        in_use: Container[str] = (),
    ) -> list[str]:
        """Note the master's names and version; return those of this broker's names that it deleted.

        At the first request names in use stay: the master may have lost them, and have got some of its entries again.
        """
        is_first = self._version is None
        before = own_version if self._version is None else self._version
        had = own if is_first else self._names
        has_lost = _number(before) > _number(version)
        if is_first and not any(name in own for name in names if name not in self._built_in):
            has_lost = True
        missing = [name for name in had if name not in names and name not in self._built_in]
        self._names, self._version = frozenset(names), version.copy()
        if missing and has_lost:
            text = (
                "SlaveSynchronize: the master lacks %d of this slave's %s, such as %s, and its table is older or empty:"
                " they are kept; if the master lost its config folder, stop it and restore the folder from this slave"
            )
            log.error(text, len(missing), self._title, missing[0])
            self._keeps = True
            return []
        self._keeps = self._keeps and any(name not in names and name not in self._built_in for name in own)
        if is_first and (used := [name for name in missing if name in in_use]):
            text = (
                "SlaveSynchronize: the master lacks %d of this slave's %s that have messages here, such as %s: they "
                "are kept; if the master lost them, create them there; if it deleted them, delete them here too"
            )
            log.warning(text, len(used), self._title, used[0])
        return [name for name in missing if not (is_first and name in in_use)]

    def version(self, own: DataVersion, version: DataVersion) -> DataVersion:
        """Return the version for this broker's table after ``gone``: the master's, unless lost names are kept.

        Then it is one above all that the master will have, so that a restart does not take them for deleted.
        """
        if not self._keeps:
            return version
        return DataVersion(own.timestamp, own.counter, max(own.state_version, version.state_version + 1))


def _number(version: DataVersion) -> tuple[int, int]:
    return version.state_version, version.counter
