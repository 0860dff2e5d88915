import java.util.Locale;

/**
 * Load on one broker through the official client. Prints one line of JSON: what was done, what failed, and how fast.
 *
 * <pre>
 * Load send    NAMESRV TOPIC THREADS BODY_BYTES SECONDS sync|async|batch:N|numbered:N [RATE]
 * Load drain   NAMESRV TOPIC GROUP MESSAGES LIMIT_SECONDS [SQL92 EVERY]
 * Load deliver NAMESRV TOPIC RATE SECONDS [POPPERS]
 * Load pop     NAMESRV TOPIC GROUP MESSAGES LIMIT_SECONDS THREADS BATCH
 * </pre>
 */
public final class Load {
    private Load() {}

    public static void main(String[] args) {
        int status = 0;
        try {
            Outcome outcome = run(args);
            System.out.println(outcome.toJson());
        } catch (Exception failure) {
            failure.printStackTrace();
            status = 1;
        }
        // The client keeps threads that would hold the JVM.
        System.exit(status);
    }

    private static Outcome run(String[] args) throws Exception {
        String namesrv = args[1];
        String topic = args[2];
        switch (args[0].toLowerCase(Locale.ROOT)) {
            case "send":
                int rate = args.length > 7 ? number(args, 7) : 0;
                return new SendLoad(namesrv, topic, number(args, 3), number(args, 4), number(args, 5), args[6], rate)
                        .run();
            case "drain":
                String sql = args.length > 6 ? args[6] : "";
                int every = sql.isEmpty() ? 1 : number(args, 7);
                return new DrainLoad(namesrv, topic, args[3], number(args, 4), number(args, 5), sql, every).run();
            case "deliver":
                int poppers = args.length > 5 ? number(args, 5) : 0;
                return new DeliverLoad(namesrv, topic, number(args, 3), number(args, 4), poppers).run();
            case "pop":
                PopClient client = new PopClient(namesrv, topic, args[3]);
                return new PopLoad(client, number(args, 4), number(args, 5), number(args, 6), number(args, 7)).run();
            default:
                throw new IllegalArgumentException("no load " + args[0] + ", there are send, drain, deliver, pop");
        }
    }

    private static int number(String[] args, int index) {
        return Integer.parseInt(args[index]);
    }
}
