"""The page of settings has every setting."""

from docs._ext import configuration as docs
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.load import MODELS


def test_every_setting_has_a_row_with_a_meaning():
    page = docs.render()
    for model in MODELS:
        for name, (_, field) in fields_by_name(model).items():
            assert f"| `{name}`" in page
            assert field.description
