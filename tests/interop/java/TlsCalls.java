import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Sends one request for each line of a file as they are added: number, name of the client, address, request code, TLS or
 * not, certificate, key and its password, issuers of servers, verify servers or not; parted by tabs. A name that is new
 * makes a client. Prints ASKED, the number, and the body of the answer or the name of the exception.
 */
public final class TlsCalls {
    private static final Map<String, NettyRemotingClient> CLIENTS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Path file = Paths.get(new Options(args).text("file"));
        TlsSystemConfig.tlsTestModeEnable = false;
        System.out.println("STARTED");
        for (int number = 0; ; Thread.sleep(10)) {
            String text = Files.readString(file);
            List<String> lines = text.substring(0, text.lastIndexOf('\n') + 1).lines().toList();
            for (; number < lines.size(); number++) {
                String[] parts = lines.get(number).split("\t", -1);
                System.out.println("ASKED\t" + parts[0] + "\t" + ask(parts));
            }
        }
    }

    private static String ask(String[] parts) throws InterruptedException {
        RemotingCommand request = RemotingCommand.createRequestCommand(Integer.parseInt(parts[3]), null);
        request.setBody("hello".getBytes(StandardCharsets.UTF_8));
        try {
            NettyRemotingClient client = CLIENTS.computeIfAbsent(parts[1], name -> made(parts));
            return new String(client.invokeSync(parts[2], request, 30_000).getBody(), StandardCharsets.UTF_8);
        } catch (org.apache.rocketmq.remoting.exception.RemotingException refused) {
            return refused.getClass().getSimpleName();
        }
    }

    /** The client reads the settings of TLS, which are static, when it is made. */
    private static NettyRemotingClient made(String[] parts) {
        NettyClientConfig config = new NettyClientConfig();
        config.setUseTLS(Boolean.parseBoolean(parts[4]));
        TlsSystemConfig.tlsClientCertPath = parts[5];
        TlsSystemConfig.tlsClientKeyPath = parts[6];
        TlsSystemConfig.tlsClientKeyPassword = parts[7];
        TlsSystemConfig.tlsClientTrustCertPath = parts[8];
        TlsSystemConfig.tlsClientAuthServer = Boolean.parseBoolean(parts[9]);
        NettyRemotingClient client = new NettyRemotingClient(config);
        client.start();
        return client;
    }
}
