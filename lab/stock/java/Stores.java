import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Reads a stopped store with RocketMQ's own DefaultMessageStore (which may write to it: give a copy). */
final class Stores {
    private Stores() {
    }

    /** Its bounds, all messages of all queues, and the places its index finds for `keys`. */
    static Object read(JSONObject asked, Lines.Teller teller) throws Exception {
        MessageStoreConfig config = config(asked);
        DefaultMessageStore store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        try {
            Map<String, Object> found = new HashMap<>();
            found.put("min", store.getMinPhyOffset());
            found.put("max", store.getMaxPhyOffset());
            List<Object[]> rows = new ArrayList<>();
            Map<String, Object> bounds = new TreeMap<>();
            for (Map.Entry<?, ?> topic : ((Map<?, ?>) store.getConsumeQueueTable()).entrySet()) {
                for (Object queue : ((Map<?, ?>) topic.getValue()).keySet()) {
                    String name = (String) topic.getKey();
                    int id = (Integer) queue;
                    long min = store.getMinOffsetInQueue(name, id);
                    long max = store.getMaxOffsetInQueue(name, id);
                    bounds.put(name + "/" + id, new long[] {min, max});
                    read(store, name, id, min, max, rows);
                }
            }
            found.put("queues", bounds);
            found.put("rows", rows);
            found.put("keys", keys(store, asked));
            return found;
        } finally {
            store.shutdown();
        }
    }

    private static MessageStoreConfig config(JSONObject asked) {
        MessageStoreConfig config = new MessageStoreConfig();
        String root = asked.getString("root");
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(asked.getIntValue("fileSize"));
        config.setMappedFileSizeConsumeQueue(asked.getIntValue("queueFileSize"));
        config.setMaxHashSlotNum(asked.getIntValue("slots"));
        config.setMaxIndexNum(asked.getIntValue("entries"));
        config.setHaListenPort(asked.getIntValue("port"));
        config.setBrokerRole(BrokerRole.SLAVE);
        config.setMaxTransferCountOnMessageInMemory(1000);
        config.setMaxTransferCountOnMessageInDisk(1000);
        return config;
    }

    /** 5.x wants the table of topics too. */
    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        MessageArrivingListener nobody = (topic, queue, offset, tags, time, filter, properties) -> { };
        Object[] all = {
            config, new BrokerStatsManager("interop", false), nobody, new BrokerConfig(), new ConcurrentHashMap<>()
        };
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            Object[] given = java.util.Arrays.copyOf(all, constructor.getParameterCount());
            return (DefaultMessageStore) constructor.newInstance(given);
        }
        throw new IllegalStateException("no constructor");
    }

    private static void read(DefaultMessageStore store, String topic, int queue, long min, long max,
            List<Object[]> rows) throws Exception {
        long offset = min;
        while (offset < max) {
            GetMessageResult result = store.getMessage("interop", topic, queue, offset, 500, null);
            if (result.getMessageBufferList().isEmpty()) {
                throw new IllegalStateException(
                    topic + "/" + queue + " at " + offset + " of " + max + ": " + result.getStatus());
            }
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                rows.add(row(MessageDecoder.decode(buffer, true, false)));
            }
            offset = result.getNextBeginOffset();
            result.release();
        }
    }

    private static Map<String, Object> keys(DefaultMessageStore store, JSONObject asked) {
        Map<String, Object> found = new TreeMap<>();
        String topic = asked.getString("topic");
        for (Object key : asked.getJSONArray("keys")) {
            QueryMessageResult result = store.queryMessage(topic, (String) key, 1000, 0, Long.MAX_VALUE);
            List<Long> places = new ArrayList<>();
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                places.add(MessageDecoder.decode(buffer, false, false).getCommitLogOffset());
            }
            result.release();
            found.put((String) key, places);
        }
        return found;
    }

    /** What is compared of a message: topic, queue, queue offset, place, body hash, tags, keys. */
    static Object[] row(MessageExt message) throws Exception {
        return new Object[] {
            message.getTopic(), message.getQueueId(), message.getQueueOffset(), message.getCommitLogOffset(),
            Producers.hash(message.getBody()), message.getTags(), message.getKeys()
        };
    }
}
