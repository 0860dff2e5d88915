import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;

/** The arguments of a driver, written name=value. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        // The client's threads would keep the JVM alive after an error in main.
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
            failure.printStackTrace();
            if (thread.getName().equals("main")) {
                System.exit(1);
            }
        });
        Hurry.begin();
        for (String arg : args) {
            int mark = arg.indexOf('=');
            if (mark < 0) {
                throw new IllegalArgumentException("not name=value: " + arg);
            }
            values.put(arg.substring(0, mark), arg.substring(mark + 1));
        }
    }

    /**
     * What every client is told. A cold JVM beside other work on two cores may need more than the client's three seconds for
     * its first connection, which then fails as a timeout although no server was slow. When a consumer is given queues it
     * raises the version of its subscription and tells it by a heartbeat, unless one is under way just then: Apache's broker
     * answers its pulls SUBSCRIPTION_NOT_LATEST from then on until the next heartbeat, which is 30 s later by default.
     */
    void connect(ClientConfig client, String instance) {
        client.setNamesrvAddr(text("namesrv"));
        client.setInstanceName(instance + "-" + ProcessHandle.current().pid());
        client.setMqClientApiTimeout(30_000);
        client.setHeartbeatBrokerInterval(number("heartbeat", 1000));
        client.setPollNameServerInterval(number("pollNameServer", 30_000));
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing " + name);
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        String value = values.get(name);
        return value == null ? otherwise : Integer.parseInt(value);
    }
}
