"""Findings of ``mqadmin doctor``."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """Severity of a finding: something fails now, or will."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, rename="camel"):
    """Something wrong.

    Attributes:
        check: name of the check.
        severity: error or warning.
        subject: what it is about, such as ``broker broker-a`` or ``group G``.
        evidence: what was seen, with its values.
        remedy: a command, or what else to do.
    """

    check: str
    severity: Severity
    subject: str
    evidence: str
    remedy: str
