import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** A broker's tables, read as a stock slave reads them. */
final class Tables {
    /** Where the classes of bodies are, in 5.x and in 4.x. */
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.body.", "org.apache.rocketmq.common.protocol.body."
    };

    private Tables() {
    }

    /** The `body` of an answer as an object of a class, and as that is written again. */
    static Object read(JSONObject asked, Lines.Teller teller) throws Exception {
        byte[] body = Base64.getDecoder().decode(asked.getString("body"));
        return RemotingSerializable.toJson(RemotingSerializable.decode(body, body(asked.getString("kind"))), false);
    }

    private static Class<?> body(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName(place + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
