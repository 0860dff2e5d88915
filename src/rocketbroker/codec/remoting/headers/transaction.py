"""Transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK_HALF_MESSAGE (323)."""

import msgspec

from rocketbroker.codec.remoting.custom_header import CommandCustomHeader
from rocketbroker.codec.remoting.java_types import Int, Long


class EndTransactionRequestHeader(CommandCustomHeader, gc=False):
    """Code 37. ``commit_or_rollback``: 8 commit, 12 rollback, 0 unknown; the offsets are the half message's."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(CommandCustomHeader, gc=False):
    """Code 39, broker to producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ResumeCheckHalfMessageRequestHeader(CommandCustomHeader):
    """Code 323."""

    topic: str | None = None
    msg_id: str | None = None
