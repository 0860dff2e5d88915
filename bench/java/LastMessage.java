import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One message more after a load: how long it takes until it is found by a pull, by its key and by its unique id. A broker
 * that is behind with its queues or its index finds it late.
 */
final class LastMessage {
    private static final long LIMIT_MS = 30_000;
    private static final long HOUR_MS = 3_600_000;
    private static final int NAP_MS = 2;

    private LastMessage() {}

    /** Time in ms until the slowest of the three ways has found it. */
    static double find(DefaultMQProducer producer, String namesrv, String topic) throws Exception {
        DefaultMQPullConsumer consumer = Clients.pullConsumer(namesrv, "bench_last");
        consumer.start();
        try {
            String key = "last" + System.nanoTime();
            // Routes and connections come first: what is measured is the broker.
            consumer.fetchSubscribeMessageQueues(topic);
            SendResult last = producer.send(new Message(topic, "", key, new byte[128]));
            long sent = System.nanoTime();
            long now = System.currentTimeMillis();
            String id = last.getMsgId();
            await("a pull", id, () -> first(consumer.pull(last.getMessageQueue(), "*", last.getQueueOffset(), 1)));
            await("its key", id, () -> producer.queryMessage(topic, key, 1, now - HOUR_MS, now + HOUR_MS).getMessageList().get(0));
            await("its unique id", id, () -> producer.viewMessage(topic, id));
            return (System.nanoTime() - sent) / 1e6;
        } finally {
            consumer.shutdown();
        }
    }

    private static MessageExt first(PullResult result) {
        return result.getMsgFoundList() == null ? null : result.getMsgFoundList().get(0);
    }

    private static void await(String way, String id, Callable<MessageExt> look) throws Exception {
        long limit = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIMIT_MS);
        Exception missing = null;
        while (System.nanoTime() < limit) {
            try {
                MessageExt message = look.call();
                if (message != null && message.getMsgId().equals(id)) {
                    return;
                }
            } catch (Exception failure) {
                missing = failure; // the client's answer for "not found" as well
            }
            Thread.sleep(NAP_MS);
        }
        throw new IllegalStateException("the last message is not found by " + way, missing);
    }
}
