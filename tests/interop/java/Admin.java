import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of Apache's mqadmin one after the other in this JVM: each line of the file is a command, its words
 * parted by tabs. A line `COMMAND` and the command go before what it prints.
 */
public final class Admin {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        System.setProperty("rocketmq.namesrv.addr", options.text("namesrv"));
        for (String line : Files.readAllLines(Paths.get(options.text("file")), StandardCharsets.UTF_8)) {
            System.out.println("\nCOMMAND\t" + line);
            MQAdminStartup.main(line.split("\t"));
        }
        System.out.println("\nCOMMAND\tend");
        System.exit(0);
    }
}
