import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Threads that send as fast as they are answered, or together at a rate of calls a second. The first third of the time,
 * 15 s at the most, is warm-up.
 */
final class SendLoad {
    private static final int LONGEST_WARM_UP_SECONDS = 15;

    private final String namesrv;
    private final String topic;
    private final int threads;
    private final int bodyBytes;
    private final int seconds;
    private final String mode;
    private final int rate;

    SendLoad(String namesrv, String topic, int threads, int bodyBytes, int seconds, String mode, int rate) {
        this.namesrv = namesrv;
        this.topic = topic;
        this.threads = threads;
        this.bodyBytes = bodyBytes;
        this.seconds = seconds;
        this.mode = mode;
        this.rate = rate;
    }

    Outcome run() throws Exception {
        DefaultMQProducer producer = Clients.producer(namesrv);
        producer.start();
        SendCounts counts = new SendCounts();
        SendMode sending = SendMode.of(mode, producer, counts, topic, bodyBytes, threads);
        int warmUp = Math.min(LONGEST_WARM_UP_SECONDS, seconds / 3);
        long begun = System.nanoTime();
        long measureFrom = begun + TimeUnit.SECONDS.toNanos(warmUp);
        long end = begun + TimeUnit.SECONDS.toNanos(seconds);
        // Between two calls of a thread; each begins at another time.
        long gap = rate > 0 ? TimeUnit.SECONDS.toNanos(threads) / rate : 0;
        Sender[] senders = new Sender[threads];
        for (int i = 0; i < threads; i++) {
            senders[i] = new Sender(i, sending, counts, measureFrom, end, begun + gap * i / threads, gap);
        }
        for (Sender sender : senders) {
            sender.start();
        }
        for (Sender sender : senders) {
            sender.join();
        }
        double rate = counts.takenSinceMeasuring() / ((System.nanoTime() - measureFrom) / 1e9);
        sending.finish();
        double found = LastMessage.find(producer, namesrv, topic);
        producer.shutdown();
        long[] latencies = Arrays.stream(senders).flatMapToLong(s -> LongStream.of(s.latencies())).sorted().toArray();
        return new Outcome()
                .figure("rate", rate)
                .latencies(latencies)
                .figure("found", found)
                .count("done", counts.taken())
                .count("failed", counts.failures())
                .error(counts.firstFailure());
    }
}
