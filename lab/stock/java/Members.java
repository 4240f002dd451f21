import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** The stock clients that run in this JVM, by name, so that they can be stopped one by one or with their name server. */
final class Members {
    /** Stops a client. */
    interface Stop {
        void run();
    }

    private static final class Member {
        final String names;
        final Object client;
        final Stop stop;

        Member(String names, Object client, Stop stop) {
            this.names = names;
            this.client = client;
            this.stop = stop;
        }
    }

    private final Map<String, Member> members = new TreeMap<>();
    private int made;

    /** What every client of these tests is told: whom to ask, and to be quick. */
    synchronized void prepare(JSONObject asked, ClientConfig config) {
        config.setNamesrvAddr(asked.getString("namesrv"));
        config.setInstanceName("member" + ++made); // a connection of its own
        config.setVipChannelEnabled(asked.getBooleanValue("vip"));
        config.setUseTLS(asked.getBooleanValue("tls"));
        config.setPollNameServerInterval(1000);
        config.setHeartbeatBrokerInterval(1000);
        config.setPersistConsumerOffsetInterval(500);
    }

    /** What a client of an account signs with; none where the test names no account. */
    static RPCHook signing(JSONObject asked) {
        String account = asked.getString("accessKey");
        return account == null
            ? null
            : new AclClientRPCHook(new SessionCredentials(account, asked.getString("secretKey")));
    }

    synchronized void add(String name, JSONObject asked, Object client, Stop stop) {
        members.put(name, new Member(asked.getString("namesrv"), client, stop));
    }

    synchronized Object find(String name) {
        Member member = members.get(name);
        return member == null ? null : member.client;
    }

    /** Stop the client of a `name`. */
    Object stop(JSONObject asked, Lines.Teller teller) {
        Member member;
        synchronized (this) {
            member = members.remove(asked.getString("name"));
        }
        if (member != null) {
            member.stop.run();
        }
        return "stopped";
    }

    /** Stop all clients of a name server. */
    Object leave(JSONObject asked, Lines.Teller teller) {
        List<Member> left = new ArrayList<>();
        synchronized (this) {
            members.values().removeIf(member -> {
                boolean theirs = member.names.equals(asked.getString("namesrv"));
                return theirs && left.add(member);
            });
        }
        left.forEach(member -> member.stop.run());
        return left.size();
    }

    /** The header's form, JSON or ROCKETMQ, of all requests that this JVM sends from now on. */
    static Object serialize(JSONObject asked, Lines.Teller teller) throws Exception {
        Field field = RemotingCommand.class.getDeclaredField("serializeTypeConfigInThisServer");
        field.setAccessible(true);
        Object before = field.get(null);
        field.set(null, SerializeType.valueOf(asked.getString("type")));
        return before;
    }
}
