import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** How long a stock producer's sends take: nothing is told, hashed or printed in between. */
final class Timings {
    private Timings() {
    }

    /**
     * Send `count` times from `threads` threads, one message each or a list of `batch`; the answer has
     * `seconds`, `statuses` and all `micros`, sorted.  Where there are `topics`, the messages go to that many in
     * turn, whose names are the topic's and a number; of what is sent one-way every 32nd message of
     * a thread is waited for: a broker that has too many waiting drops them.  What is to `ask` is no message but a
     * request of a `code`, whose `fields` have values in turn.  The first send and the last answer are told as they
     * happen: the `begin` and the `end` of the `span`.
     */
    static Object time(Producers producers, JSONObject asked, Lines.Teller teller) throws Exception {
        int count = asked.getIntValue("count");
        int threads = Math.max(1, asked.getIntValue("threads"));
        DefaultMQProducer producer = producers.producer(asked);
        long[] micros = new long[count];
        String[] statuses = new String[count];
        Thread[] running = new Thread[threads];
        tell(teller, "begin");
        long begun = System.nanoTime();
        for (int t = 0; t < threads; t++) {
            int first = t;
            running[t] = new Thread(() -> {
                for (int n = first; n < count; n += threads) {
                    one(producer, asked, n, micros, statuses);
                }
            });
            running[t].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        tell(teller, "end");
        Arrays.sort(micros);
        Map<String, Integer> counts = new TreeMap<>();
        for (String status : statuses) {
            counts.merge(status, 1, Integer::sum);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("seconds", seconds);
        found.put("statuses", counts);
        found.put("micros", micros);
        return found;
    }

    private static void tell(Lines.Teller teller, String which) {
        Map<String, Object> told = new HashMap<>();
        told.put("span", which);
        teller.tell(told);
    }

    private static void one(DefaultMQProducer producer, JSONObject asked, int n, long[] micros, String[] statuses) {
        int each = Math.max(1, asked.getIntValue("batch"));
        Message message = Producers.message(asked, n, 0);
        int topics = asked.getIntValue("topics");
        if (topics > 0) {
            message.setTopic(message.getTopic() + n % topics);
        }
        List<Message> batch = batch(message, each);
        long begun = System.nanoTime();
        try {
            statuses[n] = each == 1 ? sent(producer, asked, message, n) : producer.send(batch).getSendStatus().toString();
        } catch (Exception error) {
            statuses[n] = error.getClass().getSimpleName();
        }
        micros[n] = (System.nanoTime() - begun) / 1000;
    }

    private static String sent(DefaultMQProducer producer, JSONObject asked, Message message, int n) throws Exception {
        String kind = asked.getString("kind");
        switch (kind) {
            case "oneway":
                if (n / asked.getIntValue("threads") % 32 == 31) {
                    return producer.send(message).getSendStatus().toString();
                }
                producer.sendOneway(message);
                return "SEND_OK";
            case "ordered":
                return producer.send(message, (queues, sent, key) -> queues.get((int) key % queues.size()), n)
                    .getSendStatus().toString();
            case "ask":
                HashMap<String, String> fields = new HashMap<>();
                for (Map.Entry<String, Object> field : asked.getJSONObject("fields").entrySet()) {
                    List<?> values = (List<?>) field.getValue();
                    fields.put(field.getKey(), values.get(n % values.size()).toString());
                }
                Tool.invoke(asked.getString("address"), asked.getIntValue("code"), fields);
                return "SEND_OK";
            case "request":
                return producer.request(message, 10000) == null ? "NO_REPLY" : "SEND_OK";
            default:
                SendResult result = kind.startsWith("transaction")
                    ? producer.sendMessageInTransaction(message, kind) : producer.send(message);
                return result.getSendStatus().toString();
        }
    }

    /** So many messages with the body of one, to fill bodies is no broker's work, and ten tags in turn. */
    private static List<Message> batch(Message like, int each) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; each > 1 && i < each; i++) {
            Message message = new Message(like.getTopic(), "Tag" + i % 10, like.getKeys(), like.getBody());
            message.setWaitStoreMsgOK(like.isWaitStoreMsgOK());
            batch.add(message);
        }
        return batch;
    }
}
