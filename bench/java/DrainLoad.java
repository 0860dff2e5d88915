import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A push consumer that takes what lies in a topic, from its first message to the first delivery of the last. With a filter,
 * for which one of so many messages matches, all messages count that the broker has looked at.
 */
final class DrainLoad {
    private static final int CONSUME_THREADS = 4;
    private static final int CONSUME_BATCH = 32;

    private final String namesrv;
    private final String topic;
    private final String group;
    private final int messages;
    private final int limitSeconds;
    private final String sql;
    private final int every;
    private final AtomicLong received = new AtomicLong();
    private final AtomicLong first = new AtomicLong();
    private final AtomicLong last = new AtomicLong();
    private final CountDownLatch complete = new CountDownLatch(1);

    DrainLoad(String namesrv, String topic, String group, int messages, int limitSeconds, String sql, int every) {
        this.namesrv = namesrv;
        this.topic = topic;
        this.group = group;
        this.messages = messages;
        this.limitSeconds = limitSeconds;
        this.sql = sql;
        this.every = every;
    }

    Outcome run() throws Exception {
        DefaultMQPushConsumer consumer = Clients.consumer(namesrv, group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(CONSUME_BATCH);
        consumer.setConsumeThreadMin(CONSUME_THREADS);
        consumer.setConsumeThreadMax(CONSUME_THREADS);
        consumer.subscribe(topic, sql.isEmpty() ? MessageSelector.byTag("*") : MessageSelector.bySql(sql));
        consumer.registerMessageListener((MessageListenerConcurrently) (delivered, context) -> {
            take(delivered.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        complete.await(limitSeconds, TimeUnit.SECONDS);
        long taken = received.get() * every;
        double seconds = (last.get() - first.get()) / 1e9;
        consumer.shutdown();
        return new Outcome().figure("rate", taken / seconds).count("done", taken).count("expected", messages);
    }

    private void take(int delivered) {
        long now = System.nanoTime();
        first.compareAndSet(0, now);
        last.accumulateAndGet(now, Math::max);
        if (received.addAndGet(delivered) >= messages / every) {
            complete.countDown();
        }
    }
}
