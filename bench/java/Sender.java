import java.util.Arrays;

/**
 * One sending thread. Its first part of the time is warm-up: latencies are those of calls that end after it, which is
 * also when it reads how many messages had been sent by then.
 */
final class Sender extends Thread {
    private static final int MOST_LATENCIES = 200_000;

    private final SendMode mode;
    private final SendCounts counts;
    private final long measureFrom;
    private final long end;
    private final long[] latencies = new long[MOST_LATENCIES];
    private int recorded;

    Sender(int number, SendMode mode, SendCounts counts, long measureFrom, long end) {
        super("sender-" + number);
        this.mode = mode;
        this.counts = counts;
        this.measureFrom = measureFrom;
        this.end = end;
    }

    @Override
    public void run() {
        long begun = System.nanoTime();
        while (begun < end) {
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
            begun = System.nanoTime();
        }
    }

    /** In ns, once the thread has ended. */
    long[] latencies() {
        return Arrays.copyOf(latencies, recorded);
    }
}
