import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Pairs of a producer and a consumer, each over TLS or in plain text by its own setting, and each pair with a topic of its
 * own: `pairs` has TOPIC:PRODUCER:CONSUMER, joined by commas, with true for TLS. Producers send count messages.
 */
public final class TlsPairs {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        int count = options.number("count", 16);
        String[] pairs = options.text("pairs").split(",");
        CountDownLatch missing = new CountDownLatch(count * pairs.length);
        for (String pair : pairs) {
            String[] parts = pair.split(":");
            produce(options, parts[0], Boolean.parseBoolean(parts[1]), count);
            consume(options, parts[0], Boolean.parseBoolean(parts[2]), missing);
        }
        System.out.println(missing.await(60, TimeUnit.SECONDS) ? "DONE" : "FAILED");
        System.exit(0);
    }

    private static void produce(Options options, String topic, boolean tls, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_" + topic);
        options.connect(producer, "produce-" + topic);
        producer.setUseTLS(tls);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int n = 0; n < count; n++) {
            producer.send(Messages.make(topic, n, new String[] {"A"}));
        }
    }

    private static void consume(Options options, String topic, boolean tls, CountDownLatch missing) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("CG_" + topic);
        options.connect(consumer, "consume-" + topic);
        consumer.setUseTLS(tls);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Messages.print("GOT", messages);
            messages.forEach(message -> missing.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
