"""The gRPC port of RocketMQ's 5.x SDKs (apache.rocketmq.v2.MessagingService)."""
