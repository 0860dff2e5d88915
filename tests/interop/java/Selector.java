import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Asks Apache's own filter about cases in a file: an expression, then names and values of properties, all behind tabs.
 * Prints for each REFUSED, true, false, null or ERROR.
 */
public final class Selector {
    public static void main(String[] args) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(args[0]), StandardCharsets.UTF_8)) {
            answers.append(answer(line.split("\t", -1))).append('\n');
        }
        System.out.print(answers);
        System.out.flush();
        System.exit(0);
    }

    private static String answer(String[] fields) {
        Map<String, Object> properties = new HashMap<>();
        for (int i = 1; i + 1 < fields.length; i += 2) {
            properties.put(fields[i], fields[i + 1]);
        }
        BooleanExpression expression;
        try {
            expression = SelectorParser.parse(fields[0]);
        } catch (MQFilterException refused) {
            return "REFUSED";
        }
        try {
            return String.valueOf(expression.evaluate(new Context(properties)));
        } catch (Exception failed) {
            return "ERROR";
        }
    }

    private static final class Context implements EvaluationContext {
        private final Map<String, Object> properties;

        Context(Map<String, Object> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
