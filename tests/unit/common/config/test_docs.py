"""docs/reference/configuration.md is what the models say."""

from pathlib import Path

from rocketbroker.common.config import docs
from rocketbroker.common.config.describe import fields_by_name
from rocketbroker.common.config.resolve import MODELS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "configuration.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == docs.render(), (
        "run: python -m rocketbroker.common.config.docs > docs/reference/configuration.md"
    )


def test_every_setting_has_a_row_with_a_meaning():
    page = docs.render()
    for model in MODELS:
        for name, (_, field) in fields_by_name(model).items():
            assert f"| `{name}`" in page
            assert field.description
