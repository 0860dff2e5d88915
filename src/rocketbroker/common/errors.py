"""All errors of rocketbroker as one tree. A module in brackets is where the class is defined.

RocketBrokerError
├── ConfigError                a setting or a settings file is wrong
│   ├── NotChangeableError     ... setting that needs a restart to change (common.config.current_settings)
│   └── RevocationListError    ... revocation list where nothing checks it (common.certificates)
├── CodecError                 invalid bytes, or values that cannot be encoded
│   ├── CorruptRecordError     ... stored message record
│   ├── HeaderFieldError       ... field of a command's header (codec.remoting.frame)
│   ├── MQFilterError          ... filter expression
│   ├── EvaluationError        ... properties that a filter compares (codec.filter.expression)
│   └── HandshakeError         ... other end of a replication link without a proof (ha.ha_handshake)
│       └── WrongProofError    ... with other inner credentials (ha.ha_handshake)
├── ProtocolError
│   ├── LocalProtocolError     violation by our side, found before sending
│   └── RemoteProtocolError    violation by the peer
├── RemotingError              request that could not be completed
│   ├── RemotingConnectError   no connection to the address
│   ├── RemotingSendError      connection lost during a request
│   │   └── RemotingTooMuchRequestError  too many bytes are queued for the peer
│   └── RemotingTimeoutError   no answer in time
├── BrokerResponseError        answer other than success: code and remark
├── StoreError                 the store cannot do what was asked
│   ├── StoreFullError         disk full
│   ├── StoreBusyError         disk too slow
│   ├── TopicBeingDeletedError topic under deletion
│   ├── MessageIllegalError    message that does not fit a store with these settings
│   ├── CheckpointError        ... query of Spark whose source no longer has what its checkpoint says
│   ├── DifferentHistoryError  ... slave with messages that its master lacks (ha.history_check)
│   │   └── NothingSentError   ... nothing of the log from its place on (ha.history_check)
│   └── QueueNotWholeError     ConsumeQueue with missing entries (analytics.log.queue_entries)
├── AuthError                  failure of access control (auth.errors)
│   ├── AuthValueError         ... user, policy or file that is not valid
│   │   └── AuthConflictError  ... user or policy that exists already, or does not
│   └── RefusalError           ... refused request
│       ├── AuthenticationError    ... without valid credentials
│       └── AuthorizationError     ... of a user that lacks the right
├── NotSentError               contents of an answer to a request that a dry run did not send (client.admin.dry_run)
├── ClientError                failure of a client operation, with a tree of its own (client.core.errors)
├── ServerStateError           use of a server for tests that does not run, or is frozen (testing.rocketmq_server)
├── StatusError                call of the gRPC port that is refused with a code (proxy.call_context)
├── ClockError                 a clock that tests move cannot go back (testing.clocks)
├── ControlError               request to the control port that is answered by an error (testing.control_server)
├── JavaRuntimeError           no Java runtime that PySpark can use (analytics.spark.local_session)
└── RowError                   row of a data frame that cannot be sent (analytics.spark.message_rows)
"""

from typing import Any, Self


class RocketBrokerError(Exception):
    """Root of all errors raised by rocketbroker."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the constructor, whose arguments ``args`` does not have."""
        return type(self)._restore, (self.args, self.__dict__)

    @classmethod
    def _restore(cls, args: tuple[Any, ...], state: dict[str, Any]) -> Self:
        error = cls.__new__(cls, *args)
        error.__dict__.update(state)
        return error


class ConfigError(RocketBrokerError):
    """Wrong setting or settings file; the text names it and the valid values."""


class CodecError(RocketBrokerError, ValueError):
    """Bytes that cannot be decoded, or values that cannot be encoded."""


class CorruptRecordError(CodecError):
    """Damaged message record; the text names its position."""


class MQFilterError(CodecError):
    """Rejected filter expression (MQFilterException); ``position`` counts characters from 1."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"Invalid MessageSelector. At character {position}: {reason}")
        self.position = position
        self.reason = reason


class ProtocolError(RocketBrokerError):
    """Violation of the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """Violation by our side, found before sending."""


class RemoteProtocolError(ProtocolError):
    """Violation by the peer."""


class RemotingError(RocketBrokerError):
    """Request that could not be completed."""


class RemotingConnectError(RemotingError):
    """No connection to the address (RemotingConnectException)."""


class RemotingSendError(RemotingError):
    """The connection was lost while a request was under way (RemotingSendRequestException)."""


class RemotingTooMuchRequestError(RemotingSendError):
    """Request not sent: too many bytes are queued for the peer (RemotingTooMuchRequestException)."""


class RemotingTimeoutError(RemotingError):
    """No answer in time (RemotingTimeoutException)."""


class BrokerResponseError(RocketBrokerError):
    """An answer other than success (MQBrokerException): ``code`` is a ResponseCode, ``remark`` its text.

    A processor raises it to answer a request with that code; a client raises it for such an answer.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"CODE: {int(code)}  DESC: {remark}")
        self.code = int(code)
        self.remark = remark


class StoreError(RocketBrokerError):
    """The store cannot do what was asked."""


class CheckpointError(StoreError):
    """A source no longer has what a query's checkpoint says; the query needs its stores back, or another checkpoint."""


class StoreFullError(StoreError):
    """The disk is full."""


class StoreBusyError(StoreError):
    """The disk was too slow; retry later."""


class TopicBeingDeletedError(StoreError):
    """The topic is being deleted; it can be created again afterwards."""


class MessageIllegalError(StoreError):
    """The message does not fit a store with these settings; do not retry."""


MOST_SHOWN = 100


def shown(name: str) -> str:
    """Shorten a name to 100 characters and escape characters that could forge a log line."""
    if len(name) <= MOST_SHOWN:
        return name if name.isprintable() else _escaped(name)
    return f"{_escaped(name[:MOST_SHOWN])}... ({len(name)} characters)"


def _escaped(name: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
