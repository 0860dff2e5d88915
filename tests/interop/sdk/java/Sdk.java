import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;
import org.apache.rocketmq.shaded.com.google.gson.JsonParser;

/**
 * The official Java SDK under a test's control: commands on stdin, events on stdout, both one JSON object a line, as
 * tests/support/sdk_process.py lists them. The argument is the address of the proxy; transport is the SDK's default, TLS.
 */
public final class Sdk {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Gson GSON = new Gson();
    private static final Map<String, AutoCloseable> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, MessageView> RECEIVED = new ConcurrentHashMap<>();
    private static final Map<String, Integer> DELIVERIES = new ConcurrentHashMap<>();
    private static ClientConfiguration configuration;

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder settings = ClientConfiguration.newBuilder().setEndpoints(args[0]);
        String accessKey = System.getenv("SDK_ACCESS_KEY");
        if (accessKey != null) {
            settings.setCredentialProvider(
                new StaticSessionCredentialsProvider(accessKey, System.getenv("SDK_SECRET_KEY")));
        }
        configuration = settings.build();
        JsonObject ready = event("ready");
        Properties metadata = new Properties();
        metadata.load(ClientServiceProvider.class.getResourceAsStream("/rocketmq.metadata.properties"));
        ready.addProperty("version", metadata.getProperty("rocketmq.version"));
        print(ready);
        ExecutorService commands = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            commands.submit(() -> answer(command));
        }
        System.exit(0);
    }

    private static void answer(JsonObject command) {
        JsonObject answer = event("done");
        try {
            act(command, answer);
        } catch (Throwable failure) {
            answer.addProperty("event", "failed");
            answer.addProperty("error", String.valueOf(failure));
        }
        answer.add("n", command.get("n"));
        print(answer);
    }

    private static void act(JsonObject command, JsonObject answer) throws Exception {
        String name = text(command, "name");
        switch (text(command, "do")) {
            case "producer":
                CLIENTS.put(name, producer(name, command));
                break;
            case "push":
                CLIENTS.put(name, PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(text(command, "group")).setSubscriptionExpressions(subscription(command))
                    .setMessageListener(message -> consume(name, message)).build());
                break;
            case "simple":
                CLIENTS.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(text(command, "group")).setSubscriptionExpressions(subscription(command))
                    .setAwaitDuration(Duration.ofMillis(number(command, "await_ms"))).build());
                break;
            case "send":
                send((Producer) CLIENTS.get(name), command, answer);
                break;
            case "recall":
                answer.addProperty("id", ((Producer) CLIENTS.get(name))
                    .recallMessage(text(command, "topic"), text(command, "handle")).getMessageId().toString());
                break;
            case "receive":
                List<MessageView> messages = ((SimpleConsumer) CLIENTS.get(name))
                    .receive((int) number(command, "max"), Duration.ofMillis(number(command, "invisible_ms")));
                messages.forEach(message -> {
                    RECEIVED.put(name + message.getMessageId(), message);
                    print(described("message", name, message));
                });
                answer.addProperty("count", messages.size());
                break;
            case "ack":
                ((SimpleConsumer) CLIENTS.get(name)).ack(RECEIVED.get(name + text(command, "id")));
                break;
            case "change":
                ((SimpleConsumer) CLIENTS.get(name)).changeInvisibleDuration(RECEIVED.get(name + text(command, "id")),
                    Duration.ofMillis(number(command, "invisible_ms")));
                break;
            case "stop":
                CLIENTS.remove(name).close();
                break;
            default:
                throw new IllegalArgumentException("no command " + command);
        }
    }

    private static Producer producer(String name, JsonObject command) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(text(command, "topic"));
        return builder.setTransactionChecker(message -> {
            print(described("check", name, message));
            return TransactionResolution.valueOf(message.getProperties().getOrDefault("check", "UNKNOWN"));
        }).build();
    }

    private static Map<String, FilterExpression> subscription(JsonObject command) {
        FilterExpression filter = command.has("sql")
            ? new FilterExpression(text(command, "sql"), FilterExpressionType.SQL92)
            : new FilterExpression(text(command, "tag"), FilterExpressionType.TAG);
        return Collections.singletonMap(text(command, "topic"), filter);
    }

    private static void send(Producer producer, JsonObject command, JsonObject answer) throws Exception {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(text(command, "topic"))
            .setBody(text(command, "body").getBytes(StandardCharsets.UTF_8));
        if (command.has("tag")) {
            builder.setTag(text(command, "tag"));
        }
        if (command.has("keys")) {
            builder.setKeys(GSON.fromJson(command.get("keys"), String[].class));
        }
        if (command.has("message_group")) {
            builder.setMessageGroup(text(command, "message_group"));
        }
        if (command.has("delay_ms")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + number(command, "delay_ms"));
        }
        if (command.has("priority")) {
            builder.setPriority((int) number(command, "priority"));
        }
        if (command.has("properties")) {
            for (Map.Entry<String, JsonElement> each : command.getAsJsonObject("properties").entrySet()) {
                builder.addProperty(each.getKey(), each.getValue().getAsString());
            }
        }
        Message message = builder.build();
        if (!command.has("transaction")) {
            report(producer.send(message), answer);
            return;
        }
        Transaction transaction = producer.beginTransaction();
        report(producer.send(message, transaction), answer);
        switch (text(command, "transaction")) {
            case "COMMIT":
                transaction.commit();
                break;
            case "ROLLBACK":
                transaction.rollback();
                break;
            default: // UNKNOWN is left to the check
        }
    }

    private static void report(SendReceipt receipt, JsonObject answer) {
        answer.addProperty("id", receipt.getMessageId().toString());
        answer.addProperty("handle", receipt.getRecallHandle());
    }

    private static ConsumeResult consume(String name, MessageView message) {
        print(described("message", name, message));
        int delivery = DELIVERIES.merge(name + message.getMessageId(), 1, Integer::sum);
        int failures = Integer.parseInt(message.getProperties().getOrDefault("failures", "0"));
        return delivery <= failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private static JsonObject described(String event, String name, MessageView message) {
        JsonObject described = event(event);
        ByteBuffer body = message.getBody();
        described.addProperty("name", name);
        described.addProperty("id", message.getMessageId().toString());
        described.addProperty("topic", message.getTopic());
        described.addProperty("body", StandardCharsets.UTF_8.decode(body).toString());
        described.addProperty("tag", message.getTag().orElse(null));
        described.add("keys", GSON.toJsonTree(message.getKeys()));
        described.addProperty("message_group", message.getMessageGroup().orElse(null));
        described.addProperty("priority", message.getPriority().orElse(null));
        described.add("properties", GSON.toJsonTree(message.getProperties()));
        described.addProperty("attempt", message.getDeliveryAttempt());
        return described;
    }

    private static JsonObject event(String event) {
        JsonObject described = new JsonObject();
        described.addProperty("event", event);
        described.addProperty("at_ms", System.currentTimeMillis());
        return described;
    }

    private static String text(JsonObject command, String name) {
        return command.get(name).getAsString();
    }

    private static long number(JsonObject command, String name) {
        return command.get(name).getAsLong();
    }

    private static synchronized void print(JsonObject event) {
        System.out.println(event);
    }
}
