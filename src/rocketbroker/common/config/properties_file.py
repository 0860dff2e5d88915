"""Java .properties text: parsed with the location of each entry, changed without touching other lines.

The counterpart of java.util.Properties as BrokerStartup and Configuration use it. Files are read as UTF-8 (RocketMQ
reads Latin-1; ASCII and \\uXXXX escapes give the same). Comments may be in any encoding.

Importing the library takes about 40 ms, so it is imported on demand.
"""

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import ConfigError

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
# A backslash that is no escape: java.util.Properties drops it, so ``C:\data`` is ``C:data``. It never writes one.
_DROPPED_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*\\([0-9A-Za-eg-mo-qsv-z])")
_WRITE_BACKSLASH = "write \\\\ for a backslash, or / in a path"


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key=value` and its location for errors, such as `broker.conf:12` or `-n`."""

    key: str
    value: str
    where: str


def parse_properties(text: str, source: str, *, drops_backslashes: bool = False) -> list[Entry]:
    """Return the entries of properties text in order, including duplicates.

    Args:
        text: the text.
        source: its name for errors.
        drops_backslashes: drop a backslash that is no escape, as Java does, instead of rejecting it. Brokers of Apache
            answer with text that is not escaped.

    Raises:
        ConfigError: The text is malformed; the error names source and line.
    """
    from javaproperties import InvalidUEscapeError, KeyValue, parse

    entries: list[Entry] = []
    line = 1
    try:
        for element in parse(text):
            if isinstance(element, KeyValue):
                entry = _checked(Entry(element.key, element.value, f"{source}:{line}"))
                dropped = _DROPPED_BACKSLASH.search(element.source)
                if dropped is not None and not drops_backslashes:
                    raise ConfigError(
                        f"{entry.where}: {entry.key} would be {entry.value!r}, since a backslash before "
                        f"{dropped[1]!r} is dropped; {_WRITE_BACKSLASH}"
                    )
                entries.append(entry)
            line += len(_LINE_END.findall(element.source))
    except InvalidUEscapeError as error:
        raise ConfigError(f"{source}:{line}: {error}; \\u takes four hexadecimal digits; {_WRITE_BACKSLASH}") from error
    return entries


def _checked(entry: Entry) -> Entry:
    if not (entry.key + entry.value).isprintable():
        raise ConfigError(
            f"{entry.where}: the entry contains bytes that are not UTF-8 or characters that do not print; "
            f"write characters beyond ASCII in UTF-8 or as \\uXXXX; {_WRITE_BACKSLASH}"
        )
    return entry


def load_properties(path: str | Path) -> list[Entry]:
    """Return the entries of a properties file.

    A missing or empty file beside a backup with content was lost rather than emptied. It is an error, because the
    defaults would open another store.

    Raises:
        ConfigError: The file cannot be read, or was lost.
    """
    text = _read(Path(path))
    if not text.strip() and _backup_of(Path(path)):
        raise ConfigError(f"{path}: the settings file is empty{_backup_of(Path(path))}")
    return parse_properties(text, str(path))


def _backup_of(path: Path) -> str:
    """Return advice about the backup, "" if it is missing or empty."""
    backup = backup_of(path.resolve())
    held = backup.is_file() and backup.stat().st_size
    return f"; {backup} has the settings before the last change; copy it over the file, or remove it" if held else ""


def _read(path: Path) -> str:
    try:
        # surrogateescape preserves comments in other encodings
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the settings file: {error.strerror}{_backup_of(path)}") from error


def properties_text(values: dict[str, str]) -> str:
    """Return `key=value` lines sorted by key, each ended by a line feed: the body of GET_BROKER_CONFIG.

    MixAll.properties2String escapes nothing, although java.util.Properties parses the text. Here only text that would
    be parsed differently is escaped: addresses look as in RocketMQ, and every value arrives unchanged.
    """
    return "".join(f"{key}={_escaped(values[key])}\n" for key in sorted(values))


def _escaped(value: str) -> str:
    escaped = "".join(_ESCAPES.get(char, char) if char.isascii() else _unicode_escape(char) for char in value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def save_changes(path: str | Path, changed: dict[str, str]) -> None:
    """Write `changed` to a properties file atomically and durably, keeping its other lines.

    The previous file is kept as `<path>.bak`, as in RocketMQ. A missing file is created. Blocks (fsync).

    Raises:
        ConfigError: The file cannot be written.
    """
    from javaproperties import PropertiesFile

    target = Path(path).resolve()  # a link stays a link
    content = PropertiesFile.loads(_read(target) if target.exists() else "")
    for key, value in changed.items():
        content[key] = value
    try:
        # The file may have passwords, and its backup has them too.
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        replace_contents(target, content.dumps().encode("utf-8", "surrogateescape"), mode=mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the settings file: {error.strerror}") from error
