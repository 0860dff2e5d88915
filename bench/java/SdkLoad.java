import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Load on one proxy through the official SDK of the gRPC protocol, in plaintext. Prints one line of JSON, as Load does.
 *
 * <pre>
 * SdkLoad send    ENDPOINTS TOPIC THREADS BODY_BYTES SECONDS
 * SdkLoad receive ENDPOINTS TOPIC GROUP THREADS MESSAGES LIMIT_SECONDS
 * SdkLoad deliver ENDPOINTS TOPIC GROUP RATE SECONDS
 * </pre>
 *
 * The first third of a load by time is warm-up.
 */
public final class SdkLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int BODY_BYTES = 128;
    private static final int RECEIVE_BATCH = 32;
    // 64 first sends of a cold JVM on a busy machine take longer than the 3 s of the SDK.
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofSeconds(5);
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final int LAST_DELIVERY_LIMIT_SECONDS = 10;
    private static final int ASSIGNMENT_LIMIT_SECONDS = 60;
    private static final long NAP_NS = 50_000;

    private final ClientConfiguration configuration;
    private final String topic;

    private SdkLoad(String endpoints, String topic) {
        this.configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(REQUEST_TIMEOUT).build();
        this.topic = topic;
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            System.out.println(run(args).toJson());
        } catch (Exception failure) {
            failure.printStackTrace();
            status = 1;
        }
        // The SDK keeps threads that would hold the JVM.
        System.exit(status);
    }

    private static Outcome run(String[] args) throws Exception {
        SdkLoad load = new SdkLoad(args[1], args[2]);
        switch (args[0]) {
            case "send":
                return load.send(number(args, 3), number(args, 4), number(args, 5));
            case "receive":
                return load.receive(args[3], number(args, 4), number(args, 5), number(args, 6));
            case "deliver":
                return load.deliver(args[3], number(args, 4), number(args, 5));
            default:
                throw new IllegalArgumentException("no load " + args[0] + ", there are send, receive, deliver");
        }
    }

    private static int number(String[] args, int index) {
        return Integer.parseInt(args[index]);
    }

    /** Threads that send as fast as they are answered. */
    private Outcome send(int threads, int bodyBytes, int seconds) throws Exception {
        Producer producer = producer();
        byte[] body = body(bodyBytes);
        SendCounts counts = new SendCounts();
        long measureFrom = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds / 3);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        List<long[]> latencies = inThreads(threads, () -> {
            LongStream.Builder mine = LongStream.builder();
            for (long begun = System.nanoTime(); begun < end; begun = System.nanoTime()) {
                try {
                    producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build());
                    counts.taken(1);
                } catch (Exception failure) {
                    counts.failed(failure);
                }
                long done = System.nanoTime();
                if (done > measureFrom) {
                    counts.measuringBegins();
                    mine.add(done - begun);
                }
            }
            return mine.build().toArray();
        });
        double rate = counts.takenSinceMeasuring() / ((System.nanoTime() - measureFrom) / 1e9);
        producer.close();
        return new Outcome().figure("rate", rate).latencies(sorted(latencies)).count("done", counts.taken())
            .count("failed", counts.failures()).error(counts.firstFailure());
    }

    /** Threads that receive batches and acknowledge each message, from the first to the last acknowledgement. */
    private Outcome receive(String group, int threads, int messages, int limitSeconds) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(POLL)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        AtomicLong taken = new AtomicLong();
        AtomicLong last = new AtomicLong();
        long begun = System.nanoTime();
        long limit = begun + TimeUnit.SECONDS.toNanos(limitSeconds);
        List<long[]> latencies = inThreads(threads, () -> {
            LongStream.Builder mine = LongStream.builder();
            while (taken.get() < messages && System.nanoTime() < limit) {
                for (MessageView message : consumer.receive(RECEIVE_BATCH, INVISIBLE)) {
                    long asked = System.nanoTime();
                    consumer.ack(message);
                    last.accumulateAndGet(System.nanoTime(), Math::max);
                    mine.add(System.nanoTime() - asked);
                    taken.incrementAndGet();
                }
            }
            return mine.build().toArray();
        });
        double rate = taken.get() / ((last.get() - begun) / 1e9);
        return new Outcome().figure("rate", rate).latencies(sorted(latencies)).count("done", taken.get())
            .count("expected", messages);
    }

    /** Sends at a steady rate to a push consumer of the same process: from just before the send to the listener. */
    private Outcome deliver(String group, int rate, int seconds) throws Exception {
        Map<Integer, Long> delivered = new ConcurrentHashMap<>();
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                long now = System.nanoTime();
                Map<String, String> properties = message.getProperties();
                long sentAt = Long.parseLong(properties.get("sentAt"));
                delivered.putIfAbsent(Integer.parseInt(properties.get("number")), now - sentAt);
                return ConsumeResult.SUCCESS;
            }).build();
        Producer producer = producer();
        int messages = rate * seconds;
        int warmUp = messages / 3;
        // A consumer has its queues with its first message.
        send(producer, -1);
        await(delivered, 1, ASSIGNMENT_LIMIT_SECONDS);
        delivered.clear();
        long due = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(NAP_NS);
            }
            due += TimeUnit.SECONDS.toNanos(1) / rate;
            send(producer, i);
        }
        await(delivered, messages, LAST_DELIVERY_LIMIT_SECONDS);
        long[] latencies = delivered.entrySet().stream().filter(each -> each.getKey() >= warmUp)
            .mapToLong(Map.Entry::getValue).sorted().toArray();
        return new Outcome().latencies(latencies).count("done", delivered.size()).count("expected", messages);
    }

    private void send(Producer producer, int number) throws Exception {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic).setBody(body(BODY_BYTES));
        builder.addProperty("number", Integer.toString(number));
        builder.addProperty("sentAt", Long.toString(System.nanoTime()));
        producer.send(builder.build());
    }

    private static void await(Map<Integer, Long> delivered, int number, int limitSeconds) throws InterruptedException {
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(limitSeconds);
        while (delivered.size() < number && System.nanoTime() < limit) {
            Thread.sleep(10);
        }
    }

    private Producer producer() throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    private static byte[] body(int bytes) {
        byte[] body = new byte[bytes];
        Arrays.fill(body, (byte) 'x');
        return body;
    }

    /** The results of a work that each of so many threads does. */
    private static List<long[]> inThreads(int threads, Callable<long[]> work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<long[]>> results = pool.invokeAll(Collections.nCopies(threads, work));
        long[][] found = new long[threads][];
        for (int i : IntStream.range(0, threads).toArray()) {
            found[i] = results.get(i).get();
        }
        pool.shutdown();
        return Arrays.asList(found);
    }

    private static long[] sorted(List<long[]> latencies) {
        return latencies.stream().flatMapToLong(LongStream::of).sorted().toArray();
    }
}
