import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Stock push consumers that tell what they get. */
final class Consumers {
    private final Members members;
    private final Sends sends;

    Consumers(Members members, Sends sends) {
        this.members = members;
        this.sends = sends;
    }

    /** Start a consumer and tell every message, until it is stopped by its `name`. */
    Object consume(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            null, asked.getString("group"), Members.signing(asked), new AllocateMessageQueueAveragely());
        members.prepare(asked, consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        if (asked.getString("sql") != null) {
            consumer.subscribe(asked.getString("topic"), MessageSelector.bySql(asked.getString("sql")));
        } else {
            consumer.subscribe(asked.getString("topic"), asked.getString("tags"));
        }
        if (asked.containsKey("max")) {
            consumer.setMaxReconsumeTimes(asked.getIntValue("max"));
        }
        if (asked.getBooleanValue("broadcast")) {
            broadcast(consumer);
        }
        if (asked.getBooleanValue("pop")) {
            pop(consumer);
        }
        listen(consumer, asked, teller);
        CountDownLatch stopped = new CountDownLatch(1);
        consumer.start();
        members.add(asked.getString("name"), asked, consumer, () -> {
            consumer.shutdown();
            stopped.countDown();
        });
        Map<String, Object> told = new HashMap<>();
        told.put("started", true);
        teller.tell(told);
        stopped.await();
        return "stopped";
    }

    private void listen(DefaultMQPushConsumer consumer, JSONObject asked, Lines.Teller teller) throws Exception {
        boolean fail = asked.getBooleanValue("fail");
        if (asked.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> teller.tell(told(message)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
            return;
        }
        DefaultMQProducer replier = asked.getBooleanValue("reply") ? sends.producer(asked) : null;
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> teller.tell(told(message)));
            if (replier != null) {
                reply(replier, messages);
            }
            return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    static void reply(DefaultMQProducer producer, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String body = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
            try {
                producer.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception error) {
                error.printStackTrace();
            }
        }
    }

    /** Let the broker share the messages out; 4.9 has no such consumers. */
    static void pop(DefaultMQPushConsumer consumer) throws Exception {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    }

    /** The model's enumeration has moved between packages. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    /** What is told of a message. */
    static Map<String, Object> told(MessageExt message) {
        Map<String, Object> told = new HashMap<>();
        told.put("topic", message.getTopic());
        told.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        told.put("tag", message.getTags());
        told.put("keys", message.getKeys());
        told.put("queue", message.getQueueId());
        told.put("offset", message.getQueueOffset());
        told.put("times", message.getReconsumeTimes());
        told.put("id", message.getMsgId());
        told.put("born", message.getBornTimestamp());
        told.put("stored", message.getStoreTimestamp());
        told.put("said", message.getUserProperty("told"));
        return told;
    }
}
