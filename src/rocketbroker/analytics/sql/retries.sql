-- Retries and dead letters by group, topic and reason, and those not consumed by age. {facts}: RETRIED of facts.py;
-- {groups}: broker, group_name, retry_max_times; {offsets}: broker, group_name, topic, queue_id, consumer_offset.
-- RocketMQ does not store why a consumer failed: the reason is what a record tells (docs/reference/jobs.md).
WITH known AS (
    SELECT /*+ BROADCAST(g), BROADCAST(o) */
        *,
        queue_offset >= coalesce(consumer_offset, 0) AS waits,
        try_subtract(:now_ms, stored_ms) AS age_ms,
        coalesce(try_cast(allowed AS INT), retry_max_times) AS most
    FROM {facts}
    LEFT JOIN {groups} AS g USING (broker, group_name)
    LEFT JOIN {offsets} AS o USING (broker, group_name, topic, queue_id)
),
told AS (
    SELECT
        *,
        CASE
            WHEN NOT is_dead THEN 'retry'
            WHEN most IS NULL THEN 'dead-letter'
            WHEN reconsume_times >= most THEN 'retries-used-up'
            ELSE 'sent-to-dead-letters'
        END AS reason
    FROM known
)
SELECT
    broker,
    group_name,
    origin_topic,
    reason,
    count(*) AS messages,
    count_if(waits) AS waiting,
    min(stored_ms) FILTER (WHERE waits) AS oldest_waiting,
    count_if(waits AND age_ms < 3600000) AS under_1h,
    count_if(waits AND age_ms >= 3600000 AND age_ms < 86400000) AS under_1d,
    count_if(waits AND age_ms >= 86400000 AND age_ms < 259200000) AS under_3d,
    count_if(waits AND age_ms >= 259200000) AS older
FROM told
GROUP BY broker, group_name, origin_topic, reason
