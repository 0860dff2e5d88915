"""All errors of rocketbroker, as one tree. Where another module is named, the class stands there.

RocketBrokerError
├── ConfigError                a setting or a settings file is wrong
│   └── NotChangeableError     ... since it cannot be changed at run time (config.hot_change)
├── CodecError                 bytes that are not what they claim to be
│   ├── CorruptRecordError     ... in a stored message record
│   ├── HeaderFieldError       ... in a field of a command's header (codec.remoting.json_header)
│   ├── MQFilterError          ... in the expression of a filter
│   └── EvaluationError        ... in the properties that a filter compares (codec.filter.java_values)
├── ProtocolError
│   ├── LocalProtocolError     our side was about to break the protocol
│   └── RemoteProtocolError    the peer broke the protocol
├── RemotingError              a request could not be completed
│   ├── RemotingConnectError   no connection to the address
│   ├── RemotingSendError      the connection was lost while a request was under way
│   │   └── RemotingTooMuchRequestError  ... or the peer takes too slowly what it is sent already
│   └── RemotingTimeoutError   no answer in time
├── BrokerResponseError        an answer other than success: code and remark
├── StoreError                 the store cannot do what was asked
│   ├── StoreFullError         ... since the disk has no room
│   ├── StoreBusyError         ... since the disk has kept the writer waiting for too long
│   ├── TopicBeingDeletedError ... since the topic is on its way out
│   ├── MessageIllegalError    ... since no store with these settings holds such a message
│   └── QueueNotWholeError     ... through a ConsumeQueue that does not lead to all it should (analytics.queue_entries)
├── ClientError                a client cannot do what was asked, with a tree of its own (client.errors)
└── JavaRuntimeError           there is no Java runtime that PySpark can use (analytics.java_runtime)
"""


class RocketBrokerError(Exception):
    """Root of all errors raised by rocketbroker."""


class ConfigError(RocketBrokerError):
    """A setting or a settings file is wrong; the text names it and says what would be right."""


class CodecError(RocketBrokerError, ValueError):
    """Bytes that cannot be decoded, or values that cannot be encoded."""


class CorruptRecordError(CodecError):
    """A stored message record is damaged; the text names its position."""


class MQFilterError(CodecError):
    """The expression of a filter is refused (MQFilterException); ``position`` counts characters from 1 on."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"Invalid MessageSelector. At character {position}: {reason}")
        self.position = position
        self.reason = reason


class ProtocolError(RocketBrokerError):
    """The remoting protocol was broken."""


class LocalProtocolError(ProtocolError):
    """Our side was about to send something that is not allowed."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that is not allowed."""


class RemotingError(RocketBrokerError):
    """A request could not be completed."""


class RemotingConnectError(RemotingError):
    """No connection to the address (RemotingConnectException)."""


class RemotingSendError(RemotingError):
    """The connection was lost while a request was under way (RemotingSendRequestException)."""


class RemotingTooMuchRequestError(RemotingSendError):
    """The request was not sent: too many bytes wait for the peer already (RemotingTooMuchRequestException)."""


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


class StoreFullError(StoreError):
    """The disk has no room for what was to be written."""


class StoreBusyError(StoreError):
    """The disk has kept the writer waiting for too long; it may be tried again."""


class TopicBeingDeletedError(StoreError):
    """The topic is being deleted; it may be made anew once it is gone."""


class MessageIllegalError(StoreError):
    """No store with these settings can hold the message; another try is in vain."""
