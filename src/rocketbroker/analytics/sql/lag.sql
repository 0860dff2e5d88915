-- Lag of groups by queue at each snapshot. {snapshots}: the columns of a snapshot; {messages}: broker, topic, queue_id,
-- queue_offset and stored_ms. Queues that the store did not have (max_offset is null) are left out.
-- No broadcast hint: Spark broadcasts a small side anyway, and the snapshots of a month are large.
WITH known AS (
    SELECT * FROM {snapshots} WHERE max_offset IS NOT NULL
),
-- A topic that was deleted and created again has two messages of one offset; the newer one counts.
oldest AS (
    SELECT broker, topic, queue_id, queue_offset AS consumer_offset, max(stored_ms) AS stored_ms
    FROM {messages} AS m
    LEFT SEMI JOIN known AS k
        ON m.broker = k.broker AND m.topic = k.topic AND m.queue_id = k.queue_id AND m.queue_offset = k.consumer_offset
    GROUP BY broker, topic, queue_id, queue_offset
),
waiting AS (
    SELECT *, greatest(max_offset - consumer_offset, 0) AS lag
    FROM known
    LEFT JOIN oldest USING (broker, topic, queue_id, consumer_offset)
)
SELECT
    CASE WHEN time_ms BETWEEN :first_ms AND :last_ms THEN timestamp_millis(time_ms) END AS time,
    broker,
    group_name,
    topic,
    queue_id,
    consumer_offset,
    max_offset,
    lag,
    CASE WHEN lag = 0 THEN 0 WHEN stored_ms IS NOT NULL THEN greatest(try_subtract(time_ms, stored_ms), 0) END
        AS behind_ms
FROM waiting
