import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Threads that pop what lies in a topic, some messages at a time, and acknowledge them. Latencies are of a pop and its
 * acknowledgement. The first third of the messages is warm-up.
 */
final class PopLoad {
    private final PopClient client;
    private final int messages;
    private final long limitSeconds;
    private final int threads;
    private final int batch;
    private final AtomicLong taken = new AtomicLong();
    private final AtomicLong measuredFrom = new AtomicLong();

    PopLoad(PopClient client, int messages, int limitSeconds, int threads, int batch) {
        this.client = client;
        this.messages = messages;
        this.limitSeconds = limitSeconds;
        this.threads = threads;
        this.batch = batch;
    }

    Outcome run() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<long[]>> working = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            working.add(pool.submit(this::popUntilAllAreTaken));
        }
        LongStream.Builder all = LongStream.builder();
        for (Future<long[]> each : working) {
            LongStream.of(each.get()).forEach(all);
        }
        double seconds = (System.nanoTime() - measuredFrom.get()) / 1e9;
        pool.shutdown();
        client.shutdown();
        return new Outcome()
                .figure("rate", (taken.get() - warmUp()) / seconds)
                .latencies(all.build().sorted().toArray())
                .count("done", taken.get())
                .count("expected", messages);
    }

    private int warmUp() {
        return messages / 3;
    }

    private long[] popUntilAllAreTaken() throws Exception {
        LongStream.Builder latencies = LongStream.builder();
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(limitSeconds);
        while (taken.get() < messages && System.nanoTime() < limit) {
            long begun = System.nanoTime();
            List<MessageExt> popped = client.pop(batch);
            if (popped.isEmpty()) {
                continue;
            }
            client.ack(popped);
            long done = System.nanoTime();
            if (taken.addAndGet(popped.size()) >= warmUp()) {
                measuredFrom.compareAndSet(0, done);
                latencies.add(done - begun);
            }
        }
        return latencies.build().toArray();
    }
}
