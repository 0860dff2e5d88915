import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.locks.LockSupport;

/**
 * Shortens the ends of clients: each waits, up to 3 s, for a thread that polls for events; an interrupt ends the poll.
 * Only the thread that main joins is interrupted: any other may be sending a heartbeat, and its connection, which requests
 * use as well, would be closed.
 */
final class Hurry {
    private Hurry() {
    }

    static void begin() {
        Thread main = Thread.currentThread();
        Thread thread = new Thread(() -> watch(main), "hurry");
        thread.setDaemon(true);
        thread.start();
    }

    private static void watch(Thread main) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Thread[] found = new Thread[1024];
        while (main.isAlive()) {
            LockInfo awaited = threads.getThreadInfo(main.getId()).getLockInfo();
            int count = awaited == null ? 0 : Thread.enumerate(found);
            for (int i = 0; i < count; i++) {
                if (found[i].getName().equals("NettyEventExecutor")
                        && System.identityHashCode(found[i]) == awaited.getIdentityHashCode()) {
                    found[i].interrupt();
                }
            }
            LockSupport.parkNanos(10_000_000);
        }
    }
}
