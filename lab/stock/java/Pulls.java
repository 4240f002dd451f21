import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Everything a broker serves of a topic, by a stock consumer's pulls. */
final class Pulls {
    private Pulls() {
    }

    /** Rows of topic, queue, queue offset, place and body hash. */
    static Object all(JSONObject asked, Lines.Teller teller) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull" + System.nanoTime());
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName("pull" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        consumer.start();
        List<Object[]> rows = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(asked.getString("topic"))) {
                long offset = 0;
                for (;;) {
                    PullResult result = consumer.pull(queue, "*", offset, 32);
                    if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                        break;
                    }
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt message : result.getMsgFoundList()) {
                            rows.add(Stores.row(message));
                        }
                    } else if (result.getNextBeginOffset() <= offset) {
                        break;
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
        return rows;
    }
}
