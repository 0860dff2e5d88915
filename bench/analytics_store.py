"""Generator of a mixed store for measuring analytics or trying its jobs.

    bench/run analytics_store DIR [--gib 1] [--messages N] [--seed 1]

With --messages it is written message by message, with an index; with --gib it is whole segments of 1 GiB.
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.store_growth import write_mixed
from tests.support.mixed_store import MixedStore
from tests.support.store_damage import damage, places, tear

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def analytics_store(
    root: Annotated[Path, typer.Argument(help="The store's folder, which must not exist.", resolve_path=True)],
    gib: Annotated[int, typer.Option(min=1, help="Segments of 1 GiB.")] = 1,
    messages: Annotated[int, typer.Option(min=0, help="So many messages instead, with an index.")] = 0,
    seed: Annotated[int, typer.Option(help="Of all that is chance, with --messages.")] = 1,
    segment_mib: Annotated[int, typer.Option(min=1, help="Size of a commit-log file, with --messages.")] = 64,
    damaged: Annotated[int, typer.Option(min=0, help="Damage so many places afterwards.")] = 0,
) -> None:
    """Generate a mixed store."""
    if root.exists():
        raise typer.BadParameter(f"{root} is there already")
    begun = time.monotonic()
    if messages:
        MixedStore(root, messages, seed, mapped_file_size_commit_log=segment_mib << 20).make()
    else:
        messages = write_mixed(root, gib)
    print(f"{messages:,} messages in {time.monotonic() - begun:.0f} s")
    if damaged:
        log = root / "commitlog"
        records = list(places(log))
        for each in damage(log, records, seed, damaged):
            print(f"{each.file} {each.position} +{each.length} {each.kind}")
        print(f"torn at {tear(log, records).position}")


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
