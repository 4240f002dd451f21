import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** How fast a stock push consumer gets what a topic holds, with nothing to do for each message. */
final class Catchups {
    private Catchups() {
    }

    /**
     * Consume `count` messages in a `group` of its own; the answer has `seconds` from the first to the last,
     * and how long the `first` took to come.
     */
    static Object consume(JSONObject asked, Lines.Teller teller) throws Exception {
        String group = asked.getString("group");
        long count = asked.getLongValue("count");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName(group);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(asked.getString("topic"), "*");
        AtomicLong came = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            long now = came.addAndGet(messages.size());
            if (now >= count && now - messages.size() < count) {
                last.set(System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long begun = System.nanoTime();
        consumer.start();
        try {
            if (!done.await(asked.getIntValue("limit"), TimeUnit.SECONDS)) {
                throw new IllegalStateException("only " + came + " of " + count + " messages came");
            }
        } finally {
            consumer.shutdown();
        }
        Map<String, Object> found = new HashMap<>();
        found.put("first", (first.get() - begun) / 1e9);
        found.put("seconds", (last.get() - first.get()) / 1e9);
        return found;
    }
}
