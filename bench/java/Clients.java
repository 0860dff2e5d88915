import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Clients of the default settings but for what would make two runs differ: instance names, VIP channel, compression. */
final class Clients {
    private Clients() {}

    static DefaultMQProducer producer(String namesrv) {
        DefaultMQProducer producer = prepared(new DefaultMQProducer("bench_producer"), namesrv);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        return producer;
    }

    static DefaultMQPullConsumer pullConsumer(String namesrv, String group) {
        return prepared(new DefaultMQPullConsumer(group), namesrv);
    }

    static DefaultMQPushConsumer consumer(String namesrv, String group) {
        return prepared(new DefaultMQPushConsumer(group), namesrv);
    }

    static <T extends ClientConfig> T prepared(T client, String namesrv) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName("bench" + System.nanoTime());
        client.setVipChannelEnabled(false);
        return client;
    }
}
