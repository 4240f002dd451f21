import com.alibaba.fastjson.JSONObject;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Stock producers; each send is told with what the broker answered. */
final class Producers {
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private volatile boolean enough;

    /** No sends that have not begun. */
    Object enough(JSONObject asked, Lines.Teller teller) {
        enough = true;
        return "enough";
    }

    /** Send `count` messages of one `kind`, one after the other in each of `threads`. */
    Object put(JSONObject asked, Lines.Teller teller) throws Exception {
        enough = false;
        int count = asked.getIntValue("count");
        int first = asked.getIntValue("first");
        int threads = Math.max(1, asked.getIntValue("threads"));
        DefaultMQProducer producer = producer(asked);
        Map<String, Integer> statuses = new TreeMap<>();
        List<Thread> running = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int start = t;
            Thread thread = new Thread(() -> {
                for (int n = first + start; n < first + count && !enough; n += threads) {
                    String status = one(producer, asked, n, teller);
                    synchronized (statuses) {
                        statuses.merge(status, 1, Integer::sum);
                    }
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        return statuses;
    }

    synchronized DefaultMQProducer producer(JSONObject asked) throws Exception {
        String names = asked.getString("namesrv");
        boolean half = asked.getString("kind").startsWith("transaction");
        int poll = asked.containsKey("poll") ? asked.getIntValue("poll") : 500;
        String key = names + half + poll;
        if (!producers.containsKey(key)) {
            String group = (half ? "half" : "plain") + producers.size();
            DefaultMQProducer made = half ? new TransactionMQProducer(group) : new DefaultMQProducer(group);
            made.setNamesrvAddr(names);
            made.setInstanceName(group);
            made.setVipChannelEnabled(false);
            made.setRetryTimesWhenSendFailed(0);
            made.setSendMsgTimeout(20000);
            made.setPollNameServerInterval(poll);
            made.setMaxMessageSize(8 << 20);
            if (half) {
                ((TransactionMQProducer) made).setTransactionListener(new ByName());
            }
            made.start();
            producers.put(key, made);
        }
        return producers.get(key);
    }

    private String one(DefaultMQProducer producer, JSONObject asked, int n, Lines.Teller teller) {
        Map<String, Object> told = new HashMap<>();
        told.put("n", n);
        try {
            send(producer, asked, n, told);
        } catch (Throwable error) {
            told.put("status", error.getClass().getSimpleName());
            told.put("error", String.valueOf(error.getMessage()));
            pause();
        }
        boolean failed = told.containsKey("error");
        if (asked.getBooleanValue("tell") || failed) {
            teller.tell(told);
        }
        return (String) told.get("status");
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void send(DefaultMQProducer producer, JSONObject asked, int n, Map<String, Object> told)
            throws Exception {
        String kind = asked.getString("kind");
        SendResult result;
        List<Message> messages = new ArrayList<>();
        if (kind.equals("batch")) {
            for (int i = 0; i < 5; i++) {
                messages.add(message(asked, n, i));
            }
            result = producer.send(messages);
        } else {
            messages.add(message(asked, n, 0));
            if (kind.startsWith("transaction")) {
                result = producer.sendMessageInTransaction(messages.get(0), kind);
            } else {
                result = producer.send(messages.get(0));
            }
        }
        told.put("status", result.getSendStatus().toString());
        told.put("topic", asked.getString("topic"));
        told.put("queue", result.getMessageQueue().getQueueId());
        told.put("queueOffset", result.getQueueOffset());
        List<Long> places = new ArrayList<>();
        for (String id : String.valueOf(result.getOffsetMsgId()).split(",")) {
            if (id.length() >= 32) {
                places.add(MessageDecoder.decodeMessageId(id).getOffset());
            }
        }
        told.put("places", places);
        List<String> bodies = new ArrayList<>();
        for (Message message : messages) {
            bodies.add(hash(message.getBody()));
        }
        told.put("bodies", bodies);
    }

    /** A message as its kind wants it; its body repeats its number, or is noise (`big`). */
    static Message message(JSONObject asked, int n, int part) {
        String kind = asked.getString("kind");
        byte[] body = new byte[asked.getIntValue("size")];
        if (kind.equals("big")) {
            new Random(n).nextBytes(body);
        } else {
            byte[] line = ("message " + n + "." + part + " ").getBytes();
            for (int i = 0; i < body.length; i++) {
                body[i] = line[i % line.length];
            }
        }
        Message message = new Message(asked.getString("topic"), "Tag" + n % 3, "k" + n % 97 + " m" + n, body);
        message.putUserProperty("origin", kind);
        for (int i = 0; kind.equals("rich") && i < 10; i++) {
            message.putUserProperty("property" + i, "value " + n % 7 + " of " + i);
        }
        if (kind.equals("delay")) {
            message.setDelayTimeLevel(1 + n % 2);
        }
        if (kind.equals("timer")) {
            // Clients of 4.9 have no method for it.
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", "500");
        }
        int more = asked.getIntValue("properties");
        if (more > 0) {
            message.putUserProperty("more", new String(new char[more]).replace('\0', 'p'));
        }
        message.setWaitStoreMsgOK(asked.getBooleanValue("wait"));
        return message;
    }

    /** The first half of SHA-256. */
    static String hash(byte[] body) throws Exception {
        byte[] whole = MessageDigest.getInstance("SHA-256").digest(body);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 16; i++) {
            text.append(String.format("%02x", whole[i]));
        }
        return text.toString();
    }

    /** Ends a transaction as the name of its kind says. */
    private static final class ByName implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object kind) {
            return kind.equals("transaction-rollback")
                ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
