import importlib

import pytest

from rocketbroker.app import warm_up


@pytest.mark.parametrize("with_filters", [False, True])
async def test_the_modules_exist_and_those_of_filters_are_imported_if_needed(
    monkeypatch: pytest.MonkeyPatch, with_filters: bool
):
    monkeypatch.setattr(warm_up, "_DELAY_S", 0)
    imported: list[str] = []
    load = importlib.import_module

    def noting(module: str) -> None:
        load(module)
        imported.append(module.rpartition(".")[2])

    monkeypatch.setattr(importlib, "import_module", noting)

    await warm_up.import_modules(with_filters=with_filters)

    assert "index_file" in imported
    assert ("selector_parser" in imported) == with_filters
