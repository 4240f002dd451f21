import com.alibaba.fastjson.JSONObject;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What the tests need of RocketMQ's own classes, in one JVM a version: see lab/stock/brokers.py. */
public final class Tool {
    private static DefaultMQAdminExt admin;
    private static NettyRemotingClient remoting;

    private Tool() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ prints there
        // Look at a group's queues soon after a restart, not after 20 s; read as its class is loaded.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        Lines lines = new Lines(out);
        Producers producers = new Producers();
        Members members = new Members();
        Sends sends = new Sends(members);
        Asks asks = new Asks(members, sends);
        lines.on("version", (asked, teller) -> MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        lines.on("namesrv", Tool::nameServer);
        lines.on("runtime", Tool::runtime);
        lines.on("registered", (asked, teller) -> registered(asks.admin(asked)));
        lines.on("register", Tool::register);
        lines.on("topic", Tool::topic);
        lines.on("back", Tool::back);
        lines.on("put", producers::put);
        lines.on("time", (asked, teller) -> Timings.time(producers, asked, teller));
        lines.on("catchup", Catchups::consume);
        lines.on("answer", (asked, teller) -> Catchups.answer(producers, asked));
        lines.on("latency", (asked, teller) -> Catchups.latency(producers, asked, teller));
        lines.on("enough", producers::enough);
        lines.on("pull", Pulls::all);
        lines.on("read", Stores::read);
        lines.on("table", Tables::read);
        lines.on("serialize", Members::serialize);
        lines.on("stop", members::stop);
        lines.on("leave", members::leave);
        lines.on("send", sends::send);
        lines.on("consume", new Consumers(members, sends)::consume);
        lines.on("request", asks::request);
        lines.on("query", asks::query);
        lines.on("lite", asks::lite);
        lines.on("offsets", asks::offsets);
        lines.on("mqadmin", Commands::run);
        lines.serve();
        System.exit(0);
    }

    /** A real name server, in this JVM to save one. */
    private static Object nameServer(JSONObject asked, Lines.Teller teller) throws Exception {
        Path conf = Paths.get(asked.getString("folder"), "namesrv.conf");
        Files.write(conf, ("listenPort=" + asked.getIntValue("port") + "\n").getBytes());
        NamesrvStartup.main0(new String[] {"-c", conf.toString()});
        admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr("127.0.0.1:" + asked.getIntValue("port"));
        admin.setInstanceName("admin");
        admin.start();
        return "started";
    }

    /** What a broker says about itself (request 28). */
    private static Object runtime(JSONObject asked, Lines.Teller teller) throws Exception {
        Map<String, String> table = admin.fetchBrokerRuntimeStats(asked.getString("address")).getTable();
        Map<String, Object> found = new HashMap<>();
        for (String name : new String[] {"commitLogMinOffset", "commitLogMaxOffset", "bootTimestamp"}) {
            found.put(name, Long.valueOf(table.get(name)));
        }
        return found;
    }

    /** The addresses of all brokers that a name server knows. */
    private static Object registered(DefaultMQAdminExt admin) throws Exception {
        List<String> found = new ArrayList<>();
        admin.examineBrokerClusterInfo().getBrokerAddrTable().values()
            .forEach(broker -> found.addAll(broker.getBrokerAddrs().values()));
        return found;
    }

    /** Tell the name server of a master (request 103), from which its slaves learn the HA address. */
    private static Object register(JSONObject asked, Lines.Teller teller) throws Exception {
        HashMap<String, String> fields = new HashMap<>();
        for (String name : new String[] {"brokerName", "brokerAddr", "clusterName", "haServerAddr"}) {
            fields.put(name, asked.getString(name));
        }
        fields.put("brokerId", "0");
        fields.put("compressed", "false");
        fields.put("bodyCrc32", "0");
        invoke(asked.getString("namesrv"), 103, fields);
        return "registered";
    }

    /** Give messages back to their broker (request 36), as a consumer of a group that failed with them. */
    private static Object back(JSONObject asked, Lines.Teller teller) throws Exception {
        for (Object place : asked.getJSONArray("places")) {
            HashMap<String, String> fields = new HashMap<>();
            fields.put("offset", place.toString());
            fields.put("group", asked.getString("group"));
            fields.put("delayLevel", "1");
            invoke(asked.getString("address"), 36, fields);
        }
        return "given back";
    }

    /** Ask for what a request of a `code` without a body stands for; all threads share a connection. */
    static void invoke(String address, int code, HashMap<String, String> fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.setExtFields(fields);
        RemotingCommand response = remoting().invokeSync(address, request, 5000);
        if (response.getCode() != 0) {
            throw new IllegalStateException(response.getCode() + " " + response.getRemark());
        }
    }

    private static synchronized NettyRemotingClient remoting() {
        if (remoting == null) {
            remoting = new NettyRemotingClient(new NettyClientConfig());
            remoting.start(); // kept: a name server forgets a broker when its connection ends
        }
        return remoting;
    }

    /** Make a topic on a broker. */
    private static Object topic(JSONObject asked, Lines.Teller teller) throws Exception {
        int queues = asked.getIntValue("queues");
        TopicConfig config = new TopicConfig(asked.getString("topic"), queues, queues, 6);
        admin.createAndUpdateTopicConfig(asked.getString("address"), config);
        return "made";
    }
}
