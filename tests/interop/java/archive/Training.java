import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Loads the classes that tests need, by a name server, a broker, clients and mqadmin in one JVM, which archives them when
 * it ends. Arguments: ports of name server and broker, and a folder.
 */
public final class Training {
    private static final String TOPIC = "Training";

    public static void main(String[] args) throws Exception {
        int namesrvPort = Integer.parseInt(args[0]);
        int brokerPort = Integer.parseInt(args[1]);
        Path folder = Path.of(args[2]);
        String namesrv = "127.0.0.1:" + namesrvPort;
        Path namesrvFile = folder.resolve("namesrv.properties");
        Files.writeString(namesrvFile, "listenPort=" + namesrvPort + "\n");
        NamesrvStartup.main(new String[] {"-c", namesrvFile.toString()});
        Path brokerFile = folder.resolve("broker.properties");
        Files.writeString(brokerFile, String.join("\n", "brokerName=broker-a", "brokerIP1=127.0.0.1",
            "listenPort=" + brokerPort, "haListenPort=" + (brokerPort + 1), "namesrvAddr=" + namesrv,
            "storePathRootDir=" + folder.resolve("store"), "storePathCommitLog=" + folder.resolve("store/commitlog"),
            "mappedFileSizeCommitLog=1048576", "diskMaxUsedSpaceRatio=99", ""));
        BrokerStartup.main(new String[] {"-c", brokerFile.toString()});
        talk(namesrv);
        MQAdminStartup.main(new String[] {"clusterList", "-n", namesrv});
        MQAdminStartup.main(new String[] {"topicStatus", "-n", namesrv, "-t", TOPIC});
        // In order it would take 20 s; the archive is written after the hooks.
        Runtime.getRuntime().exit(0);
    }

    private static void talk(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_Training");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int number = 0; number < 10; number++) {
            producer.send(new Message(TOPIC, "tag", "key-" + number, "body".getBytes(StandardCharsets.UTF_8)));
        }
        CountDownLatch received = new CountDownLatch(10);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("CG_Training");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> received.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultLitePullConsumer puller = new DefaultLitePullConsumer("CG_Training_pull");
        puller.setNamesrvAddr(namesrv);
        puller.subscribe(TOPIC, "*");
        puller.start();
        puller.poll(1000);
        if (!received.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer got no messages");
        }
        puller.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }
}
