import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of Apache's mqadmin in this JVM, from the lines of a file as they are added, words parted by tabs.
 * Prints RAN, the command's number, and in base64 what it wrote to standard output and to standard error.
 */
public final class AdminShell {
    public static void main(String[] args) throws Exception {
        Path file = Paths.get(new Options(args).text("file"));
        PrintStream console = System.out;
        Thread main = Thread.currentThread();
        Thread hurry = new Thread(() -> hurry(main), "hurry");
        hurry.setDaemon(true);
        hurry.start();
        console.println("STARTED");
        for (int number = 0; ; Thread.sleep(10)) {
            String text = Files.readString(file);
            List<String> lines = text.substring(0, text.lastIndexOf('\n') + 1).lines().toList();
            for (; number < lines.size(); number++) {
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                ByteArrayOutputStream err = new ByteArrayOutputStream();
                System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
                System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
                forgetSubCommands();
                MQAdminStartup.main(lines.get(number).split("\t"));
                console.println("RAN\t" + number + "\t" + encoded(out) + "\t" + encoded(err));
            }
        }
    }

    /**
     * Each client waits at its end, up to 3 s, for a thread that polls for events; an interrupt ends the poll.
     * Only the thread that main joins is interrupted: any other may be sending a heartbeat, and its connection,
     * which the command uses as well, would be closed.
     */
    private static void hurry(Thread main) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Thread[] found = new Thread[1024];
        while (true) {
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

    /** Some sub-commands keep a client that they have shut down, and would fail when they run again. */
    private static void forgetSubCommands() throws ReflectiveOperationException {
        Field subCommands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        subCommands.setAccessible(true);
        ((List<?>) subCommands.get(null)).clear();
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return "b" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
