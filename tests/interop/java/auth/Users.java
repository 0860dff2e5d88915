import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authentication.provider.AuthenticationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;

/** Users in memory. */
public final class Users implements AuthenticationMetadataProvider {
    static final Map<String, User> ALL = new HashMap<>();

    @Override
    public void initialize(AuthConfig config, Supplier<?> metadataService) {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public CompletableFuture<Void> createUser(User user) {
        ALL.put(user.getUsername(), user);
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Void> deleteUser(String name) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<Void> updateUser(User user) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<User> getUser(String name) {
        return CompletableFuture.completedFuture(ALL.get(name));
    }

    @Override
    public CompletableFuture<List<User>> listUser(String filter) {
        throw new UnsupportedOperationException();
    }
}
