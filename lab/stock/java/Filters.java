import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** What stock says of `expressions` about sets of `properties`, both in a file of JSON that is named. */
public final class Filters {
    private Filters() {
    }

    public static void main(String[] arguments) throws Exception {
        byte[] raw = Files.readAllBytes(Paths.get(arguments[0]));
        JSONObject asked = JSON.parseObject(new String(raw, StandardCharsets.UTF_8));
        JSONArray sets = asked.getJSONArray("properties");
        Map<String, String> said = new LinkedHashMap<>();
        for (Object expression : asked.getJSONArray("expressions")) {
            said.put((String) expression, said((String) expression, sets));
        }
        new PrintStream(System.out, true, "UTF-8").println(JSON.toJSONString(said));
    }

    /** A letter a set: true, false, null, an exception; or "!" where it does not compile. */
    private static String said(String text, JSONArray sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException wrong) {
            return "!";
        }
        StringBuilder letters = new StringBuilder();
        for (int at = 0; at < sets.size(); at++) {
            try {
                Object value = expression.evaluate(new Properties(sets.getJSONObject(at)));
                letters.append(value == null ? 'n' : value == Boolean.TRUE ? 't' : value == Boolean.FALSE ? 'f' : '?');
            } catch (Throwable wrong) {
                letters.append('x');
            }
        }
        return letters.toString();
    }

    private static final class Properties implements EvaluationContext {
        private final JSONObject pairs;

        private Properties(JSONObject pairs) {
            this.pairs = pairs;
        }

        @Override
        public Object get(String name) {
            return pairs.getString(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(pairs);
        }
    }
}
