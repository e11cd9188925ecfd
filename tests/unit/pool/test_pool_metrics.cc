// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text form: what vLLM and Triton say, and what nobody should.
#include <criterion/criterion.h>

#include <cmath>

#include "pool/member/prometheus_text.h"

using namespace bellows::pool;

namespace {

PrometheusMetric one(const std::string& text, const std::string& name) {
  const auto read = read_prometheus_text(text, {name});
  cr_assert_eq(read.metrics.size(), 1, "%s is not in: %s", name.c_str(), text.c_str());
  return read.metrics.begin()->second;
}

double value_of(const std::string& text) { return one(text + "\n", "a").value; }

const std::string kVllm = R"(# HELP vllm:num_requests_running Number of requests in model execution.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.125
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.7453e+04
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 140.0
vllm:time_to_first_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 140.0
vllm:time_to_first_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.25
)";

const std::string kTriton =
    R"(# HELP nv_inference_queue_duration_us Cumulative inference queuing duration in microseconds (includes cached requests)
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="resnet50",version="1"} 19376
nv_inference_queue_duration_us{model="bert",version="3"} 24
# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet50",version="1"} 4
# HELP nv_inference_queue_summary_us Summary of inference queuing duration in microseconds
# TYPE nv_inference_queue_summary_us summary
nv_inference_queue_summary_us{model="resnet50",version="1",quantile="0.5"} 119
nv_inference_queue_summary_us{model="resnet50",version="1",quantile="0.9"} NaN
nv_inference_queue_summary_us_count{model="resnet50",version="1"} 161
nv_inference_queue_summary_us_sum{model="resnet50",version="1"} 19376
)";

}  // namespace

Test(prometheus_text, vllm_is_read) {
  const auto read = read_prometheus_text(
      kVllm, {"vllm:num_requests_running", "vllm:generation_tokens_total",
              "vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_bucket"});
  cr_expect_eq(read.wrong_lines, 0);
  cr_expect_eq(read.samples, 8);
  cr_assert_eq(read.metrics.size(), 3, "the buckets are left out");
  const auto& running = read.metrics.at("vllm:num_requests_running");
  cr_expect(running.value == 11 && !running.counter && !running.wrong && !running.oldest_ms);
  const auto& tokens = read.metrics.at("vllm:generation_tokens_total");
  cr_expect(tokens.value == 27453 && tokens.counter);
  const auto& first = read.metrics.at("vllm:time_to_first_token_seconds_sum");
  cr_expect(first.value == 3.25 && first.counter);
}

Test(prometheus_text, triton_is_read) {
  const auto queued = one(kTriton, "nv_inference_queue_duration_us");
  cr_expect(queued.value == 19400 && queued.counter);
  const auto pending = one(kTriton, "nv_inference_pending_request_count");
  cr_expect(pending.value == 4 && !pending.counter, "its name ends like a part of a summary");
  cr_expect(one(kTriton, "nv_inference_queue_summary_us_count").counter);
  cr_expect(read_prometheus_text(kTriton, {"nv_inference_queue_summary_us"}).metrics.empty());
}

Test(prometheus_text, every_form_of_a_line_is_read) {
  cr_expect_eq(value_of("a 1"), 1);
  cr_expect_eq(value_of("  a\t1e3  "), 1000);
  cr_expect_eq(value_of("a{} -2.5"), -2.5);
  cr_expect_eq(value_of("a { x = \"1\" , y=\"2\", } +3"), 3);
  cr_expect_eq(value_of(R"(a{x="} 7 \" \\ \n #"} 4)"), 4);
  cr_expect_eq(value_of("a{x=\"\u00fc\"} 4\r"), 4);
  cr_expect(std::isnan(value_of("a NaN")));
  cr_expect(std::isinf(value_of("a +Inf")) && value_of("a -Inf") < 0);
  const auto timed = one("a 1 1395066363000\na{x=\"1\"} 2 1395066362000\na{x=\"2\"} 4\n", "a");
  cr_expect(timed.value == 7 && timed.oldest_ms == 1395066362000);
  cr_expect(one("a_total 1\n", "a_total").counter);
  cr_expect_not(one("# TYPE a_total gauge\na_total 1\n", "a_total").counter);
  cr_expect_not(one("# HELP a TYPE a counter\n#\n# TYPE\n\na 1\n", "a").counter);
}

Test(prometheus_text, a_wrong_line_is_counted_and_spoils_its_name_alone) {
  for (const char* line : {"a",
                           "a ",
                           "a x",
                           "a 1 x",
                           "a 1 2 3",
                           "a{",
                           "a{x} 1",
                           "a{x=1} 1",
                           "a{x=\"1} 1",
                           "a{x=\"\\t\"} 1",
                           "a{x=\"1\"",
                           "a{1x=\"1\"} 1",
                           "a{x=\"1\" y=\"2\"} 1",
                           "a{,} 1",
                           "a 0x10",
                           "a 1e999",
                           "a +-1",
                           "a ++1",
                           "a 1,5",
                           "a 1 99999999999999999",
                           "a=1",
                           "a 1_000"}) {
    const auto read = read_prometheus_text("a 5\n" + std::string(line) + "\nb 2\n", {"a", "b"});
    cr_expect_eq(read.wrong_lines, 1, "%s", line);
    cr_expect(read.metrics.at("a").wrong, "%s", line);
    cr_expect(read.metrics.at("b").value == 2 && !read.metrics.at("b").wrong, "%s", line);
  }
  for (const char* line : {"1a 1", "{x=\"1\"} 1", "# TYPE a thing", "# TYPE a", "<html>",
                           "# TYPE b counter x", "\x01\xff"}) {
    const auto read = read_prometheus_text("a 5\n" + std::string(line) + "\n", {"a", "b"});
    cr_expect_eq(read.wrong_lines, 1, "%s", line);
    cr_expect_not(read.metrics.at("a").wrong, "%s", line);
  }
  cr_expect(one("a 5\na 6", "a").wrong, "the last line may be cut off");
  cr_expect_eq(read_prometheus_text("# TYPE a gauge\n# TYPE a counter\n", {"a"}).wrong_lines, 1);
}

Test(prometheus_text, limits_are_kept) {
  const std::string blanks(PrometheusText::kMostLine, ' ');
  cr_expect(one("a " + blanks + "1\n", "a").wrong);
  std::string labels;
  for (std::size_t i = 0; i < PrometheusText::kMostLabels; ++i)
    labels += "l" + std::to_string(i) + "=\"\",";
  cr_expect_not(one("a{" + labels + "} 1\n", "a").wrong);
  cr_expect(one("a{" + labels + "x=\"\"} 1\n", "a").wrong);
  std::string many;
  for (std::size_t i = 0; i < PrometheusText::kMostSamples; ++i) many += "a 1\n";
  cr_expect_eq(one(many, "a").value, PrometheusText::kMostSamples);
  const auto read = read_prometheus_text(many + "b 1\n", {"a"});
  cr_expect(read.too_many && read.metrics.empty());
  cr_expect(read_prometheus_text(std::string(4 << 20, '{'), {"a"}).metrics.empty());
}
