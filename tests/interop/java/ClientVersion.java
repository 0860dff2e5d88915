import org.apache.rocketmq.common.MQVersion;

/** Prints the version of the client on the class path, for example V5_5_0. */
public final class ClientVersion {
    public static void main(String[] args) {
        System.out.println(MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION) + " " + String.join(",", args));
    }
}
