import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclSigner;
import org.apache.rocketmq.auth.authentication.builder.DefaultAuthenticationContextBuilder;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.builder.DefaultAuthorizationContextBuilder;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.enums.Decision;
import org.apache.rocketmq.auth.authorization.enums.PolicyType;
import org.apache.rocketmq.auth.authorization.exception.AuthorizationException;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Environment;
import org.apache.rocketmq.auth.authorization.model.Policy;
import org.apache.rocketmq.auth.authorization.model.PolicyEntry;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.auth.migration.AuthMigrator;
import org.apache.rocketmq.common.action.Action;
import org.apache.rocketmq.common.chain.HandlerChain;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry;

/**
 * Asks Apache's classes of access control, one question a line, its words parted by tabs; each line has one answer,
 * ANSWER and its text. Other lines are those of the logging.
 *
 * NEW                                                forget all entries
 * ENTRY   policy resource actions sources decision   add an entry of joe
 * ASK     resource actions address                   ALLOW or DENY
 * RIGHTS  code body name=value...                    resources and actions that the request is checked for
 * MIGRATE file                                       user and entries that plain_acl.yml becomes
 * SIGN    secret version body name=value...          the signature of the request
 */
public final class Decide implements AuthorizationMetadataProvider {
    private static final Subject JOE = User.of("joe");
    private static Acl acl = new Acl();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        RequestHeaderRegistry.getInstance().initialize();
        AuthConfig config = new AuthConfig();
        config.setConfigName("decide");
        config.setClusterName("C");
        config.setAuthorizationMetadataProvider(Decide.class.getName());
        config.setAuthenticationMetadataProvider(Users.class.getName());
        config.setMigrateAuthFromV1Enabled(true);
        AclAuthorizationHandler handler = new AclAuthorizationHandler(config);
        DefaultAuthorizationContextBuilder rights = new DefaultAuthorizationContextBuilder(config);
        ChannelHandlerContext channel = new EmbeddedChannel(new ChannelInboundHandlerAdapter()).pipeline().firstContext();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "NEW":
                    acl = Acl.of(JOE, new ArrayList<>());
                    answer(out, "OK");
                    break;
                case "ENTRY":
                    add(words);
                    answer(out, "OK");
                    break;
                case "ASK":
                    answer(out, ask(handler, words));
                    break;
                case "RIGHTS":
                    answer(out, rights(rights.build(channel, command(words[1], "513", words[2], words, 3))));
                    break;
                case "MIGRATE":
                    answer(out, migrate(config, Base64.getDecoder().decode(words[1])));
                    break;
                default:
                    RemotingCommand signed = command("1", words[2], words[3], words, 4);
                    byte[] content = new DefaultAuthenticationContextBuilder().build(channel, signed).getContent();
                    answer(out, AclSigner.calSignature(content, words[1]));
            }
        }
        System.exit(0);
    }

    private static void answer(PrintStream out, String text) {
        out.println("ANSWER\t" + text);
        out.flush();
    }

    private static void add(String[] words) {
        PolicyType type = PolicyType.getByName(words[1]);
        if (acl.getPolicy(type) == null) {
            acl.getPolicies().add(Policy.of(type, new ArrayList<>()));
        }
        List<String> sources = words[4].isEmpty() ? new ArrayList<>() : Arrays.asList(words[4].split(","));
        acl.getPolicy(type).getEntries().add(PolicyEntry.of(Resource.of(words[2]), actions(words[3]),
            Environment.of(sources), Decision.getByName(words[5])));
    }

    private static String ask(AclAuthorizationHandler handler, String[] words) {
        DefaultAuthorizationContext asked =
            DefaultAuthorizationContext.of(JOE, Resource.of(words[1]), actions(words[2]), words[3]);
        try {
            handler.handle(asked, HandlerChain.create()).join();
            return "ALLOW";
        } catch (CompletionException refused) {
            if (refused.getCause() instanceof AuthorizationException) {
                return "DENY";
            }
            throw refused;
        }
    }

    private static String migrate(AuthConfig config, byte[] file) throws Exception {
        Path conf = Paths.get(System.getProperty("rocketmq.home.dir"), "conf");
        Files.createDirectories(conf);
        Files.write(conf.resolve("plain_acl.yml"), file);
        Users.ALL.clear();
        acl = null;
        new AuthMigrator(config).migrate();
        List<String> found = new ArrayList<>();
        for (User user : Users.ALL.values()) {
            found.add(user.getUserType().getName() + " " + user.getUsername() + " " + user.getPassword());
        }
        for (Policy policy : acl == null ? new ArrayList<Policy>() : acl.getPolicies()) {
            for (PolicyEntry entry : policy.getEntries()) {
                found.add(policy.getPolicyType().getName() + " " + entry.toResourceStr() + " "
                    + String.join(",", entry.toActionsStr()) + " " + entry.getDecision().getName());
            }
        }
        return String.join("; ", found);
    }

    private static String rights(List<DefaultAuthorizationContext> contexts) {
        return contexts.stream().map(one -> one.getActions().stream().map(Action::getName)
            .collect(Collectors.joining(" or ")) + " on " + one.getResourceKey()).collect(Collectors.joining("; "));
    }

    private static RemotingCommand command(String code, String version, String body, String[] words, int first) {
        RemotingCommand command = RemotingCommand.createRequestCommand(Integer.parseInt(code), null);
        command.setVersion(Integer.parseInt(version));
        HashMap<String, String> fields = new HashMap<>();
        for (String pair : Arrays.asList(words).subList(first, words.length)) {
            fields.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        command.setExtFields(fields);
        command.setBody(body.isEmpty() ? null : Base64.getDecoder().decode(body));
        return command;
    }

    private static List<Action> actions(String words) {
        return Arrays.stream(words.split(",")).map(Action::getByName).collect(Collectors.toList());
    }

    @Override
    public void initialize(AuthConfig config, Supplier<?> metadataService) {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public CompletableFuture<Void> createAcl(Acl created) {
        acl = created;
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Void> deleteAcl(Subject subject) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<Void> updateAcl(Acl updated) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<Acl> getAcl(Subject subject) {
        return CompletableFuture.completedFuture(acl);
    }

    @Override
    public CompletableFuture<List<Acl>> listAcl(String subjectFilter, String resourceFilter) {
        throw new UnsupportedOperationException();
    }
}
