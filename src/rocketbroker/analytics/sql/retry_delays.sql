-- Age of messages at each retry, and the time since the retry before it, in ms. {facts}: RETRIED of facts.py.
-- Brokers are combined: another broker may have stored the previous retry.
WITH tries AS (
    SELECT
        group_name,
        reconsume_times,
        age,
        try_subtract(stored_ms, lag(stored_ms) OVER (
            PARTITION BY group_name, origin_id ORDER BY reconsume_times, stored_ms
        )) AS since
    FROM {facts}
    WHERE NOT is_dead
)
SELECT
    group_name,
    reconsume_times,
    count(*) AS messages,
    min(age) AS least_ms,
    avg(age) AS mean_ms,
    percentile(age, :percentiles) AS percentiles_ms,
    max(age) AS greatest_ms,
    count(since) AS with_previous,
    min(since) AS least_previous_ms,
    avg(since) AS mean_previous_ms,
    percentile(since, :percentiles) AS percentiles_previous_ms,
    max(since) AS greatest_previous_ms
FROM tries
GROUP BY group_name, reconsume_times
