import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sync producers and push consumers of one group that live on while the broker is killed and started again. Producer p
 * sends its numbers 0, 1, 2 ... to queue n modulo the number of queues, one at a time, each as often as it takes until
 * SEND_OK. Prints ACK, producer, number, attempt, queue, offset; FAIL, producer, number, attempt, why; GOT, consumer,
 * producer, number, attempt, queue, offset in the order in which the listeners had them; BAD for a body that nobody sent.
 * Once the file `stopFile` is there, each producer goes on until its number is acknowledged, PRODUCED is printed, and the
 * consumers stay until the process is ended. With `later`, a topic, the load of CrashLater is there besides.
 */
public final class CrashLoad {
    private static final int RETRY_PAUSE_MILLIS = 10;
    // A request that was on its way when its broker was killed is now and then not failed by the client but left to time out,
    // so not for long; and a cold JVM beside other work needs more than 3 s for its first connection.
    private static final int API_TIMEOUT_MILLIS = 10_000;
    private static final PrintStream OUT =
        new PrintStream(new BufferedOutputStream(new FileOutputStream(java.io.FileDescriptor.out), 1 << 16), false);
    private static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();
    private static Path stopFile;
    private static String topic;
    private static int pauseMillis;

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        topic = options.text("topic");
        stopFile = Path.of(options.text("stopFile"));
        pauseMillis = options.number("pauseMillis", 0);
        boolean orderly = "orderly".equals(options.text("listener", "concurrent"));
        for (int number = 0; number < options.number("consumers", 2); number++) {
            consume(options, number, orderly);
        }
        List<Thread> workers = new ArrayList<>();
        for (int number = 0; number < options.number("producers", 4); number++) {
            workers.add(produce(options, number));
        }
        if (!options.text("later", "").isEmpty()) {
            workers.addAll(new CrashLater(options).start());
        }
        for (Thread worker : workers) {
            worker.start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        print("PRODUCED");
        Thread.currentThread().join(); // the consumers take the rest until the process is ended
    }

    private static void consume(Options options, int number, boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer = consumer(options, topic, "consumer-" + number);
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                got(number, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                got(number, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        CONSUMERS.add(consumer);
    }

    /** A consumer of a topic, soon at work again after its broker was killed; it has no listener yet. */
    static DefaultMQPushConsumer consumer(Options options, String topic, String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("CG_" + topic);
        options.connect(consumer, instance);
        consumer.setMqClientApiTimeout(API_TIMEOUT_MILLIS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setPersistConsumerOffsetInterval(100);
        consumer.getDefaultMQPushConsumerImpl().setPullTimeDelayMillsWhenException(50);
        // One thread, so that messages of a queue come to the listener in the order in which the client has them.
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    /** Has a producer try each message once, and not for long. */
    static void connect(DefaultMQProducer producer, Options options, String instance) {
        options.connect(producer, instance);
        producer.setMqClientApiTimeout(API_TIMEOUT_MILLIS);
        producer.setSendMsgTimeout(5000);
        producer.setRetryTimesWhenSendFailed(0);
    }

    private static Thread produce(Options options, int number) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_" + topic);
        connect(producer, options, "producer-" + number);
        producer.start();
        return new Thread(() -> {
            for (int n = 0; !Files.exists(stopFile); n++) {
                sendUntilAcknowledged(producer, number, n);
            }
            producer.shutdown();
        }, "producer-" + number);
    }

    private static void sendUntilAcknowledged(DefaultMQProducer producer, int number, int n) {
        for (int attempt = 0; ; attempt++) {
            String why;
            try {
                Message message = new Message(topic, "T" + n % 3, "k" + number + "-" + n, body(number, n, attempt));
                Thread.sleep(attempt > 0 ? RETRY_PAUSE_MILLIS : pauseMillis);
                // A send to a chosen queue is tried once by the client.
                SendResult result = producer.send(message, (queues, each, key) -> queues.get(n % queues.size()), n);
                why = result.getSendStatus().name();
                if (why.equals("SEND_OK")) {
                    int queue = result.getMessageQueue().getQueueId();
                    print("ACK", number, n, attempt, queue, result.getQueueOffset());
                    return;
                }
            } catch (Exception failure) {
                why = why(failure);
            }
            print("FAIL", number, n, attempt, why);
        }
    }

    /** A failure in one line. */
    static String why(Exception failure) {
        String line = String.valueOf(failure.getMessage()).lines().findFirst().orElse("");
        return (failure.getClass().getSimpleName() + ": " + line).replace('\t', ' ');
    }

    private static byte[] body(int producer, int n, int attempt) {
        String text = producer + " " + n + " " + attempt + " ";
        return (text + "x".repeat(n * 37 % 900)).getBytes(StandardCharsets.US_ASCII);
    }

    private static void got(int consumer, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String text = new String(message.getBody(), StandardCharsets.US_ASCII);
            String[] parts = text.split(" ", 4);
            int producer = Integer.parseInt(parts[0]);
            int n = Integer.parseInt(parts[1]);
            int attempt = Integer.parseInt(parts[2]);
            boolean sound = text.equals(new String(body(producer, n, attempt), StandardCharsets.US_ASCII));
            print(sound ? "GOT" : "BAD", consumer, producer, n, attempt, message.getQueueId(), message.getQueueOffset());
        }
    }

    static void print(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.length() == 0 ? "" : "\t").append(field);
        }
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }
}
