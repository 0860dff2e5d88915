"""Requests of the name server (DefaultRequestProcessor and ClientRequestProcessor of org.apache.rocketmq.namesrv)."""
