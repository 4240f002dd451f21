import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** How fast stock push consumers get what a topic holds, with nothing to do for each message. */
final class Catchups {
    private Catchups() {
    }

    /**
     * Consume `count` messages in a `group` of its own with so many `members`, or one, all or those of `tags` or of
     * an expression in `sql`; the answer has `seconds` from the first to the last, and how long the `first` took to
     * come.  What comes for the first time is given `back`, if it should, and does not count.
     */
    static Object consume(JSONObject asked, Lines.Teller teller) throws Exception {
        long count = asked.getLongValue("count");
        AtomicLong came = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        List<DefaultMQPushConsumer> consumers = members(asked, (messages, context) -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            if (asked.getBooleanValue("back") && messages.get(0).getReconsumeTimes() == 0) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            long now = came.addAndGet(messages.size());
            if (now >= count && now - messages.size() < count) {
                last.set(System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long begun = System.nanoTime();
        try {
            for (DefaultMQPushConsumer consumer : consumers) {
                consumer.start();
            }
            if (!done.await(asked.getIntValue("limit"), TimeUnit.SECONDS)) {
                throw new IllegalStateException("only " + came + " of " + count + " messages came");
            }
        } finally {
            consumers.forEach(DefaultMQPushConsumer::shutdown);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("first", (first.get() - begun) / 1e9);
        found.put("seconds", (last.get() - first.get()) / 1e9);
        return found;
    }

    /**
     * Send `count` messages, each when the one before has come to a consumer; answers how long each took.  Of a
     * broker that takes seconds for some it is as many as came within the `seconds` there are.
     */
    static Object latency(Producers producers, JSONObject asked, Lines.Teller teller) throws Exception {
        SynchronousQueue<Long> came = new SynchronousQueue<>();
        List<DefaultMQPushConsumer> consumers = members(asked, (messages, context) -> {
            long now = System.nanoTime();
            for (Message message : messages) {
                try {
                    came.offer(now - ByteBuffer.wrap(message.getBody()).getLong(), 1, TimeUnit.SECONDS);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producers.producer(asked);
        int count = asked.getIntValue("count");
        long[] micros = new long[count];
        long until = System.nanoTime() + asked.getLongValue("seconds") * 1_000_000_000L;
        try {
            for (DefaultMQPushConsumer consumer : consumers) {
                consumer.start();
            }
            for (int n = -asked.getIntValue("before"); n < count; n++) {
                byte[] body = new byte[asked.getIntValue("size")];
                ByteBuffer.wrap(body).putLong(System.nanoTime());
                producer.send(new Message(asked.getString("topic"), body));
                Long took = came.poll(asked.getIntValue("limit"), TimeUnit.SECONDS);
                if (took == null) {
                    throw new IllegalStateException("message " + n + " did not come");
                }
                if (n >= 0) {
                    micros[n] = took / 1000;
                    if (System.nanoTime() > until) {
                        micros = Arrays.copyOf(micros, n + 1);
                        break;
                    }
                }
            }
        } finally {
            consumers.forEach(DefaultMQPushConsumer::shutdown);
        }
        Arrays.sort(micros);
        return micros;
    }

    /** Begin to answer the requests that come to a topic. */
    static Object answer(Producers producers, JSONObject asked) throws Exception {
        DefaultMQProducer producer = producers.producer(asked);
        for (DefaultMQPushConsumer consumer : members(asked, (messages, context) -> {
            Consumers.reply(producer, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        })) {
            consumer.start();
        }
        return "answering";
    }

    private static List<DefaultMQPushConsumer> members(JSONObject asked, MessageListenerConcurrently listener)
            throws Exception {
        String group = asked.getString("group");
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int n = 0; n < Math.max(1, asked.getIntValue("members")); n++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(asked.getString("namesrv"));
            consumer.setInstanceName(group + n);
            consumer.setVipChannelEnabled(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            if (asked.getBooleanValue("pop")) {
                Consumers.pop(consumer);
            }
            String sql = asked.getString("sql");
            consumer.subscribe(asked.getString("topic"), sql == null
                ? MessageSelector.byTag(asked.getString("tags")) : MessageSelector.bySql(sql));
            consumer.registerMessageListener(listener);
            consumers.add(consumer);
        }
        return consumers;
    }
}
