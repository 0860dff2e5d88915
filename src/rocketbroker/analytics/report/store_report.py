"""Output of a report on stores: the page, and optionally PNGs."""

import tempfile
from pathlib import Path

from rocketbroker.analytics.report.facts import StoreFacts
from rocketbroker.analytics.report.figures import Unit
from rocketbroker.analytics.report.page import html_page
from rocketbroker.analytics.report.png import write_pngs
from rocketbroker.analytics.report.sections import sections, tiles
from rocketbroker.analytics.report.units import show
from rocketbroker.common.errors import StoreError


def write_report(facts: StoreFacts, output: Path, png_dir: Path | None = None) -> list[Path]:
    """Write the page to ``output``, atomically, and PNGs of its figures to ``png_dir``; return the files."""
    shown = sections(facts)
    page = html_page("Store report", lead(facts), tiles(facts), shown)
    try:
        _write_whole(output, page)
        return [output, *(write_pngs(shown, png_dir) if png_dir is not None else [])]
    except OSError as error:
        raise StoreError(f"cannot write {error.filename or output}: {error.strerror}") from error


def lead(facts: StoreFacts) -> str:
    """Return the lead of the page: stores, time range and selection."""
    names = ", ".join(broker for broker, _ in facts.stores)
    times = f"{show(facts.first_ms, Unit.TIME)} to {show(facts.last_ms, Unit.TIME)} UTC"
    text = f"{names}: {'no messages' if facts.first_ms is None else times}"
    return f"{text}; {facts.asked}" if facts.asked else text


def _write_whole(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", errors="replace", delete=False
    ) as part:
        part_path = Path(part.name)
        try:
            part.write(text)
            part.close()
            part_path.chmod(0o644)
            part_path.replace(path)
        except BaseException:
            part_path.unlink(missing_ok=True)
            raise
