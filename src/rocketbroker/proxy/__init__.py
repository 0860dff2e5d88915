"""The gRPC port of RocketMQ's 5.x SDKs (apache.rocketmq.v2.MessagingService)."""

try:
    import cryptography as _cryptography  # noqa: F401
    import grpc as _grpc  # noqa: F401
    from google.protobuf import message as _message  # noqa: F401
except ImportError as error:
    raise ImportError(f"the gRPC port needs an extra: pip install 'rocketbroker[grpc]' ({error})") from error
