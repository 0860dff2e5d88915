import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of Apache's mqadmin in this JVM, from the lines of a file as they are added, words parted by tabs.
 * Prints RAN, the command's number, and in base64 what it wrote to standard output and to standard error.
 */
public final class AdminShell {
    public static void main(String[] args) throws Exception {
        Path file = Paths.get(new Options(args).text("file"));
        PrintStream console = System.out;
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
                String line = lines.get(number);
                MQAdminStartup.main(line.isEmpty() ? new String[0] : line.split("\t"));
                console.println("RAN\t" + number + "\t" + encoded(out) + "\t" + encoded(err));
            }
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
