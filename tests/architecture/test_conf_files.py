"""Comments of the shipped settings files agree with the settings and the commands."""

import re
from pathlib import Path

import pytest

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [path for path in sorted((ROOT / "conf").rglob("*")) if path.is_file()]
SETTINGS = {
    field.alias
    for model in (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig)
    for field in model.model_fields.values()
}
DEFAULTS = {"flushed every {} ms": MessageStoreConfig().flush_interval_commit_log}


def comments(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if line.startswith("#"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_files_and_figures_in_comments_exist(path: Path):
    text = comments(path)

    assert [word for word in re.findall(r"\b[a-z]+[A-Z]\w+", text) if word not in SETTINGS] == []
    assert [word for word in re.findall(r"(?:bin|conf)/[\w./-]+", text) if not (ROOT / word).exists()] == []
    for claim, default in DEFAULTS.items():
        found = re.search(claim.format(r"(\d+)"), text)
        assert found is None or int(found[1]) == default
    # Old files are deleted by these brokers; a comment that says otherwise would cost somebody his messages.
    assert not re.search(r"\b(no|not|never)\b[^.]*\bdeleted?\b", text)
