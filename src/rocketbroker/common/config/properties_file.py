"""Java .properties text: read with the place of each entry, written back without touching other lines.

Answers to java.util.Properties as BrokerStartup and Configuration use it. Files are read as UTF-8 (RocketMQ takes
Latin-1; for ASCII, and with \\uXXXX escapes, it is the same). Comments may be in any encoding.

The library costs some 40 ms of import, so it is imported when there is something to read.
"""

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import ConfigError

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key=value`, and where it was given, as an error names it: `broker.conf:12`, `-n`."""

    key: str
    value: str
    where: str


def parse_properties(text: str, source: str) -> list[Entry]:
    """The entries of properties text in order, duplicates included; raises ConfigError naming source and line."""
    from javaproperties import InvalidUEscapeError, KeyValue, parse

    entries: list[Entry] = []
    line = 1
    try:
        for element in parse(text):
            if isinstance(element, KeyValue):
                entries.append(_checked(Entry(element.key, element.value, f"{source}:{line}")))
            line += len(_LINE_END.findall(element.source))
    except InvalidUEscapeError as error:
        raise ConfigError(f"{source}:{line}: {error}; \\u takes four hexadecimal digits") from error
    return entries


def _checked(entry: Entry) -> Entry:
    if not (entry.key + entry.value).isprintable():
        raise ConfigError(
            f"{entry.where}: the entry holds bytes that are not UTF-8 or characters that do not print; "
            "write others than ASCII in UTF-8 or as \\uXXXX"
        )
    return entry


def load_properties(path: str | Path) -> list[Entry]:
    """Return the entries of a properties file; raises ConfigError in one line when it cannot be read.

    A file that is missing or empty beside a backup that is not was lost rather than emptied: it is refused, since the
    defaults would have another store opened.
    """
    text = _read(Path(path))
    if not text.strip() and _backup_of(Path(path)):
        raise ConfigError(f"{path}: the settings file is empty{_backup_of(Path(path))}")
    return parse_properties(text, str(path))


def _backup_of(path: Path) -> str:
    """What to say of the backup, "" when there is nothing in it."""
    backup = backup_of(path.resolve())
    held = backup.is_file() and backup.stat().st_size
    return f"; {backup} holds what it was before the last change: copy it over the file, or remove it" if held else ""


def _read(path: Path) -> str:
    try:
        # surrogateescape keeps comments in other encodings as they are
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the settings file: {error.strerror}{_backup_of(path)}") from error


def properties_text(values: dict[str, str]) -> str:
    """`key=value` lines sorted by key, each ended by a line feed: the body of GET_BROKER_CONFIG.

    MixAll.properties2String escapes nothing, though what is sent is read by java.util.Properties. Here only what would
    be read differently is escaped, so that addresses look as they do there and every value arrives as it is.
    """
    return "".join(f"{key}={_escaped(values[key])}\n" for key in sorted(values))


def _escaped(value: str) -> str:
    escaped = "".join(_ESCAPES.get(char, char) if char.isascii() else _unicode_escape(char) for char in value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def save_changes(path: str | Path, changed: dict[str, str]) -> None:
    """Put `changed` into a properties file, keeping its other lines; whole or not at all, durable on return.

    What was there before is kept in `<path>.bak`, as RocketMQ does. A file that does not exist is
    made. Blocks (fsync). Raises ConfigError when it cannot be written.
    """
    from javaproperties import PropertiesFile

    target = Path(path).resolve()  # a link stays a link
    content = PropertiesFile.loads(_read(target) if target.exists() else "")
    for key, value in changed.items():
        content[key] = value
    try:
        mode = target.stat().st_mode if target.exists() else None
        replace_contents(target, content.dumps().encode("utf-8", "surrogateescape"))
        if mode is not None:
            target.chmod(stat.S_IMODE(mode))
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the settings file: {error.strerror}") from error
