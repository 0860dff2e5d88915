import java.util.Locale;

/** What a load did, as one line of JSON; figures that a load does not have are left out. */
final class Outcome {
    private final StringBuilder fields = new StringBuilder();

    Outcome name(String value) {
        return put("name", '"' + value + '"');
    }

    Outcome count(String name, long value) {
        return put(name, Long.toString(value));
    }

    Outcome figure(String name, double value) {
        // A load that did nothing has no figures: JSON has no NaN.
        return Double.isFinite(value) ? put(name, String.format(Locale.ROOT, "%.4f", value)) : this;
    }

    /** Median and 99th percentile in ms of latencies in ns. */
    Outcome latencies(long[] sorted) {
        if (sorted.length == 0) {
            return this;
        }
        return figure("p50", sorted[sorted.length / 2] / 1e6).figure("p99", sorted[(int) (sorted.length * 0.99)] / 1e6);
    }

    Outcome error(Throwable failure) {
        if (failure == null) {
            return this;
        }
        String text = failure.toString().replaceAll("[^ !#-\\[\\]-~]", " ");
        return put("error", '"' + text.substring(0, Math.min(text.length(), 300)) + '"');
    }

    String toJson() {
        return "{" + fields + "}";
    }

    private Outcome put(String name, String value) {
        fields.append(fields.length() == 0 ? "" : ", ").append('"').append(name).append("\": ").append(value);
        return this;
    }
}
