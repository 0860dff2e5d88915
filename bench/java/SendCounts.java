import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/** Messages that the broker took, sends that failed, and how many had been taken when measuring began. */
final class SendCounts {
    private static final long NOT_YET = -1;

    private final AtomicLong taken = new AtomicLong();
    private final AtomicLong failures = new AtomicLong();
    private final AtomicLong takenBefore = new AtomicLong(NOT_YET);
    private final AtomicReference<Throwable> firstFailure = new AtomicReference<>();

    void taken(int messages) {
        taken.addAndGet(messages);
    }

    void failed(Throwable failure) {
        failures.incrementAndGet();
        firstFailure.compareAndSet(null, failure);
    }

    void measuringBegins() {
        if (takenBefore.get() == NOT_YET) {
            takenBefore.compareAndSet(NOT_YET, taken.get());
        }
    }

    long taken() {
        return taken.get();
    }

    long failures() {
        return failures.get();
    }

    long takenSinceMeasuring() {
        return taken.get() - Math.max(takenBefore.get(), 0);
    }

    Throwable firstFailure() {
        return firstFailure.get();
    }
}
