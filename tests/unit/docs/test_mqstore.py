"""docs/reference/mqstore.md is what the sub-commands and the rules say."""

from pathlib import Path

import pytest

from docs._ext import mqstore as docs
from docs._ext.mqadmin import function_options
from rocketbroker.codec.storefile.audit_rules import AuditRule

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "mqstore.md"
ALL = dict(docs.all_commands())


@pytest.mark.parametrize("name", ALL)
def test_each_sub_command_and_option_is_documented(name: str) -> None:
    section = PAGE.read_text().split(f"\n## {name}\n", 1)[1].split("\n## ")[0]
    for option in function_options(ALL[name]):
        assert option.help in section


@pytest.mark.parametrize("rule", AuditRule)
def test_each_rule_is_documented(rule: AuditRule) -> None:
    tools = "both" if len(rule.tools) > 1 else f"`{rule.tools[0]}`"
    assert f"| `{rule.value}` | {rule.severity.value} | {rule.meaning} | {tools} |" in PAGE.read_text()
