"""Name server: routes, liveness of brokers and key-value configuration (org.apache.rocketmq.namesrv)."""
