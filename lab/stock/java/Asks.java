import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a client asks for and gets an answer to: a reply, stored messages, its group's offsets. */
final class Asks {
    private final Members members;
    private final Sends sends;

    Asks(Members members, Sends sends) {
        this.members = members;
        this.sends = sends;
    }

    /** Send `bodies` as requests; answers the replies' bodies. */
    Object request(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQProducer producer = sends.producer(asked);
        List<String> replies = new ArrayList<>();
        for (Message message : Sends.messages(asked)) {
            Message reply = asked.getString("how").equals("sync")
                ? producer.request(message, 10000) : async(producer, message);
            replies.add(new String(reply.getBody(), StandardCharsets.UTF_8));
        }
        return replies;
    }

    private static Message async(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message got) {
                if (got != null) { // 5.3.3 calls back for the acknowledged send too
                    reply.complete(got);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, 10000);
        return reply.get(15, TimeUnit.SECONDS);
    }

    /** Stored messages of a `topic`, by `key`, by `id` (where it is stored) or by `unique` key. */
    Object query(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQAdminExt admin = admin(asked);
        String topic = asked.getString("topic");
        List<Object> found = new ArrayList<>();
        if (asked.containsKey("key")) {
            QueryResult result = admin.queryMessage(topic, asked.getString("key"), 100, 0, Long.MAX_VALUE);
            for (MessageExt message : result.getMessageList()) {
                found.add(Consumers.told(message));
            }
        } else {
            String id = asked.containsKey("id") ? asked.getString("id") : asked.getString("unique");
            found.add(Consumers.told(admin.viewMessage(topic, id)));
        }
        return found;
    }

    /** The administrator's client of a name server. */
    DefaultMQAdminExt admin(JSONObject asked) throws Exception {
        String name = "admin " + asked.getString("namesrv");
        synchronized (members) {
            if (members.find(name) == null) {
                DefaultMQAdminExt admin = new DefaultMQAdminExt();
                members.prepare(asked, admin);
                admin.start();
                members.add(name, asked, admin, admin::shutdown);
            }
            return (DefaultMQAdminExt) members.find(name);
        }
    }

    /**
     * Read a topic with the lite pull consumer until it is quiet, then commit; answers the messages. With `assigned` it
     * takes all queues itself.
     */
    Object lite(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(asked.getString("group"));
        members.prepare(asked, consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (!asked.getBooleanValue("assigned")) {
            consumer.subscribe(asked.getString("topic"), asked.getString("tags"));
        }
        consumer.start();
        if (asked.getBooleanValue("assigned")) {
            consumer.assign(consumer.fetchMessageQueues(asked.getString("topic")));
        }
        List<Object> found = new ArrayList<>();
        try {
            int wanted = asked.getIntValue("count");
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (found.size() < wanted && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(500)) {
                    found.add(Consumers.told(message));
                }
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
        return found;
    }

    /** Where a group stands in each queue of a topic, as a pull consumer of it is told; `set` moves it before. */
    Object offsets(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(asked.getString("group"));
        members.prepare(asked, consumer);
        consumer.start();
        List<Object> found = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(asked.getString("topic"))) {
                if (asked.containsKey("set")) {
                    consumer.updateConsumeOffset(queue, asked.getLongValue("set"));
                    consumer.getOffsetStore().persist(queue);
                    // The stock client commits oneway: asked on the same connection, so behind it.
                    consumer.getOffsetStore().removeOffset(queue);
                }
                long middle = consumer.searchOffset(queue, asked.getLongValue("time"));
                found.add(new long[] {
                    queue.getQueueId(), consumer.fetchConsumeOffset(queue, true),
                    consumer.minOffset(queue), consumer.maxOffset(queue), middle,
                });
            }
        } finally {
            consumer.shutdown();
        }
        return found;
    }
}
