-- Messages and bytes of each topic by interval. {facts}: TRAFFIC of facts.py.
-- Times outside the years 1 to 9999 share one row, whose from_time is null.
SELECT broker, topic, from_time, sum(messages) AS messages, sum(bytes) AS bytes
FROM (
    SELECT *, CASE WHEN from_ms BETWEEN :first_ms AND :last_ms THEN timestamp_millis(from_ms) END AS from_time
    FROM {facts}
)
GROUP BY broker, topic, from_time
