"""Safe display of names from the network in logs and remarks: one line, bounded length."""

MOST_SHOWN = 100


def shown(name: str) -> str:
    """Shorten a name to 100 characters and escape characters that could forge a log line."""
    if len(name) <= MOST_SHOWN:
        return name if name.isprintable() else _escaped(name)
    return f"{_escaped(name[:MOST_SHOWN])}... ({len(name)} characters)"


def _escaped(name: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
