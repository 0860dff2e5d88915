"""Runner of notebooks: each cell in one namespace, with the output of each cell.

    PYTHONPATH=src:. .venv/bin/python -m tests.support.notebooks docs/how-to/analytics-tour.ipynb FOLDER

runs a notebook in a folder and writes what it printed into it. There is no kernel: cells are plain Python that prints.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that are run, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """Return the output of a cell as saved in the notebook."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def printed_by_cells(notebook: dict[str, Any], folder: Path) -> list[str]:
    """Run all cells with ``folder`` as the working directory; return what each printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    with contextlib.chdir(folder):
        for number, cell in enumerate(code_cells(notebook), 1):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
            printed.append(said.getvalue())
    return printed


def main() -> None:
    """Write what a notebook prints into it."""
    path, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    notebook = json.loads(path.read_text())
    for number, (cell, text) in enumerate(
        zip(code_cells(notebook), printed_by_cells(notebook, folder), strict=True), 1
    ):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + os.linesep)


if __name__ == "__main__":
    main()
