import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages whose content the test chose, sent in every way that the stock producer has. */
final class Sends {
    private final Members members;

    Sends(Members members) {
        this.members = members;
    }

    /** Send `bodies` to `topic`, `how` is said; answers what came of each. */
    Object send(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQProducer producer = producer(asked);
        List<Message> messages = messages(asked);
        List<Object> results = new ArrayList<>();
        if (asked.getString("how").equals("async")) {
            return async(producer, messages);
        }
        if (asked.getString("how").equals("batch")) {
            results.add(told(producer.send(messages)));
            return results;
        }
        for (Message message : messages) {
            try {
                results.add(told(one(producer, message, asked)));
            } catch (Exception error) {
                results.add(told(error));
            }
        }
        return results;
    }

    private static SendResult one(DefaultMQProducer producer, Message message, JSONObject asked) throws Exception {
        switch (asked.getString("how")) {
            case "oneway":
                producer.sendOneway(message);
                return null;
            case "ordered":
                // All of one key share a queue.
                return producer.send(
                    message, (queues, sent, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())),
                    message.getKeys());
            case "transaction":
                return producer.sendMessageInTransaction(message, null);
            default:
                return producer.send(message);
        }
    }

    private static Object async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch left = new CountDownLatch(messages.size());
        Object[] results = new Object[messages.size()];
        for (int i = 0; i < results.length; i++) {
            int at = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[at] = told(result);
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    results[at] = told(error);
                    left.countDown();
                }
            });
        }
        left.await(30, TimeUnit.SECONDS);
        return results;
    }

    DefaultMQProducer producer(JSONObject asked) throws Exception {
        String how = asked.getString("how");
        boolean half = "transaction".equals(how);
        boolean traced = asked.getBooleanValue("trace");
        String name = "producer " + asked.getString("namesrv") + " " + asked.getString("group")
            + half + traced + asked.getBooleanValue("vip") + asked.getBooleanValue("tls")
            + asked.getString("accessKey");
        synchronized (members) {
            if (members.find(name) == null) {
                String group = asked.getString("group");
                DefaultMQProducer made;
                if (half) {
                    made = new TransactionMQProducer(group, Members.signing(asked));
                    ((TransactionMQProducer) made).setTransactionListener(new ByBody());
                } else {
                    made = new DefaultMQProducer(group, Members.signing(asked), traced, null);
                }
                members.prepare(asked, made);
                made.setRetryTimesWhenSendFailed(0);
                made.setCompressMsgBodyOverHowmuch(4096);
                made.start();
                members.add(name, asked, made, made::shutdown);
            }
            return (DefaultMQProducer) members.find(name);
        }
    }

    static List<Message> messages(JSONObject asked) {
        List<Message> messages = new ArrayList<>();
        JSONArray bodies = asked.getJSONArray("bodies");
        JSONArray tags = asked.getJSONArray("tags");
        JSONArray keys = asked.getJSONArray("keys");
        for (int i = 0; i < bodies.size(); i++) {
            byte[] body = bodies.getString(i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(asked.getString("topic"), tags.getString(i), keys.getString(i), body);
            message.putUserProperty("told", "by the test");
            int level = asked.getIntValue("level");
            if (level > 0) {
                message.setDelayTimeLevel(level);
            }
            messages.add(message);
        }
        return messages;
    }

    private static Map<String, Object> told(SendResult result) {
        Map<String, Object> told = new HashMap<>();
        told.put("status", result == null ? "SENT" : result.getSendStatus().toString());
        if (result != null) {
            told.put("id", result.getMsgId());
            told.put("place", result.getOffsetMsgId());
            told.put("queue", result.getMessageQueue().getQueueId());
            told.put("offset", result.getQueueOffset());
        }
        return told;
    }

    private static Map<String, Object> told(Throwable error) {
        Map<String, Object> told = new HashMap<>();
        told.put("status", error.getClass().getSimpleName());
        told.put("error", String.valueOf(error.getMessage()));
        return told;
    }

    /** Ends each transaction as the body's first word says; "unknown" commits when the broker asks. */
    private static final class ByBody implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (new String(message.getBody(), StandardCharsets.UTF_8).split(" ")[0]) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            return body.startsWith("rollback")
                ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
