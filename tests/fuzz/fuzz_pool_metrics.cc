// SPDX-License-Identifier: Apache-2.0
/// What a member's program answers when it is asked for its metrics: every text gives the wanted
/// names and no others, within the limits, and the same ones again when a wrong line is added.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "pool/member/prometheus_text.h"

using namespace bellows::pool;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MetricNames kNames{"vllm:num_requests_running", "nv_inference_queue_duration_us",
                                  "http_request_duration_seconds_sum", "a", "b_total"};
  std::string text(reinterpret_cast<const char*>(data), size);
  const auto read = read_prometheus_text(text, kNames);
  require(!read.too_many || read.metrics.empty());
  require(read.samples <= PrometheusText::kMostSamples + 1);
  for (const auto& [name, metric] : read.metrics) require(kNames.contains(name));
  if (read.too_many || (!text.empty() && text.back() != '\n')) return 0;
  const auto longer = read_prometheus_text(text + "{ 1\n", kNames);
  require(longer.wrong_lines == read.wrong_lines + 1);
  require(longer.metrics.size() == read.metrics.size());
  const auto broken = read_prometheus_text(text + "a{ 1\n", kNames);
  require(broken.too_many || broken.metrics.find("a")->second.wrong);
  return 0;
}
