"""The gRPC port of RocketMQ's 5.x SDKs (apache.rocketmq.v2.MessagingService)."""

try:
    from google.protobuf import message as _message  # noqa: F401
except ImportError as error:
    raise ImportError("the gRPC port needs the package 'protobuf': pip install 'rocketbroker[grpc]'") from error
