import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/**
 * One sending thread. Its first part of the time is warm-up: latencies are those of calls that end after it, which is
 * also when it reads how many messages had been sent by then. With a gap its calls are due at fixed times, from which
 * their latencies count: a late one makes those behind it late, until the warm-up ends.
 */
final class Sender extends Thread {
    private static final int MOST_LATENCIES = 200_000;

    private final SendMode mode;
    private final SendCounts counts;
    private final long measureFrom;
    private final long end;
    private final long gap;
    private long due;
    private final long[] latencies = new long[MOST_LATENCIES];
    private int recorded;

    Sender(int number, SendMode mode, SendCounts counts, long measureFrom, long end, long due, long gap) {
        super("sender-" + number);
        this.mode = mode;
        this.counts = counts;
        this.measureFrom = measureFrom;
        this.end = end;
        this.due = due;
        this.gap = gap;
    }

    @Override
    public void run() {
        for (long begun = next(); begun < end; begun = next()) {
            try {
                mode.send(getName());
            } catch (Exception failure) {
                counts.failed(failure);
            }
            long done = System.nanoTime();
            if (done > measureFrom) {
                counts.measuringBegins();
                if (recorded < MOST_LATENCIES) {
                    latencies[recorded++] = done - begun;
                }
            }
        }
    }

    /** Returns the time from which the next call counts, once it has come. */
    private long next() {
        long now = System.nanoTime();
        if (gap == 0) {
            return now;
        }
        if (due < measureFrom && now >= measureFrom) {
            due += (measureFrom - due + gap - 1) / gap * gap; // what a cold client left is not made up for
        }
        long from = due;
        due += gap;
        for (; now < from; now = System.nanoTime()) {
            LockSupport.parkNanos(from - now);
        }
        return from;
    }

    /** In ns, once the thread has ended. */
    long[] latencies() {
        return Arrays.copyOf(latencies, recorded);
    }
}
