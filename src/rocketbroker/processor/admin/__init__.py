"""Administration of a broker (org.apache.rocketmq.broker.processor.AdminBrokerProcessor), one file a request code."""
