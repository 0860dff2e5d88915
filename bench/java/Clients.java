import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Clients of the default settings but for what would make two runs differ: instance names, VIP channel, compression. They
 * sign as the user of the system properties bench.accessKey and bench.secretKey, if there is one.
 */
final class Clients {
    private Clients() {}

    static DefaultMQProducer producer(String namesrv) {
        DefaultMQProducer producer = prepared(new DefaultMQProducer("bench_producer", signer()), namesrv);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        return producer;
    }

    static DefaultMQPullConsumer pullConsumer(String namesrv, String group) {
        return prepared(new DefaultMQPullConsumer(group, signer()), namesrv);
    }

    static DefaultMQPushConsumer consumer(String namesrv, String group) {
        AllocateMessageQueueAveragely strategy = new AllocateMessageQueueAveragely();
        return prepared(new DefaultMQPushConsumer(group, signer(), strategy), namesrv);
    }

    private static RPCHook signer() {
        String name = System.getProperty("bench.accessKey");
        String secret = System.getProperty("bench.secretKey");
        return name == null ? null : new AclClientRPCHook(new SessionCredentials(name, secret));
    }

    static <T extends ClientConfig> T prepared(T client, String namesrv) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName("bench" + System.nanoTime());
        client.setVipChannelEnabled(false);
        return client;
    }
}
