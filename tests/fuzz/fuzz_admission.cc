// SPDX-License-Identifier: Apache-2.0
/// What a client may put into a job: NUL-separated texts for the options, the account, the GPU
/// fields and the numbers. Whatever is admitted must be within the tenant's limits, and its
/// contract must read back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/text.h"
#include "jobsubmit/admission.h"

namespace {

using namespace bellows;

const Policy& policy() {
  static const Policy policy = *load_policy(
      "version: 1\n"
      "checkpoint_dir: /c/%u/%a/%j\n"
      "frameworks: {a: {versions: [\"1\", \"2\"]}, b: }\n"
      "tenants:\n"
      "  t: {frameworks: [\"a:1\", b], gpus: {min: 2, max: 64, step: 2, start: 4}}\n"
      "  u: \n",
      "f");
  return policy;
}

struct Input {
  std::vector<std::string_view> texts;
  std::size_t next = 0;

  std::optional<std::string> text() {
    if (next >= texts.size() || texts[next].empty()) {
      ++next;
      return std::nullopt;
    }
    return std::string(texts[next++]);
  }
  std::optional<std::uint32_t> number() {
    const auto word = text();
    const auto value = word ? parse_uint(*word) : std::nullopt;
    if (!value) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
  }
  Sizes sizes() {
    Sizes sizes;
    sizes.per_job = text();
    sizes.per_node = text();
    sizes.per_task = text();
    sizes.per_socket = text();
    sizes.tasks = number();
    sizes.min_nodes = number();
    sizes.max_nodes = number();
    return sizes;
  }
};

void require(bool holds) {
  if (!holds) std::abort();
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

void check_update(const Contract& contract, const Sizes& now, Input& input) {
  const Admitted job{contract, now, true};
  Update update;
  update.sizes = input.sizes();
  const UpdateDecision decision = decide_update(&policy(), job, update);
  require(decision.refused.has_value() == !decision.message.empty());
  require(printable(decision.message));
  if (decision.refused || !decision.changes.per_job) return;
  Sizes next;
  next.per_job = decision.changes.per_job;
  const auto gpus = count_gpus(next);
  require(gpus.ok() && *gpus && contract.gpus.contains((*gpus)->gpus));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{split(std::string_view(reinterpret_cast<const char*>(data), size), '\0')};
  Request request;
  request.framework = input.text();
  request.gpus_range = input.text();
  request.account = input.text().value_or("");
  request.batch = input.text() != "i";
  request.sizes = input.sizes();
  if (!request.wants_bellows()) return 0;
  const Decision decision = decide(&policy(), "", request);
  require(printable(decision.message) && decision.message.size() < 4096);
  if (decision.refused) {
    require(!decision.message.empty());
    return 0;
  }
  const auto contract = Contract::parse(decision.contract.to_string());
  require(contract.ok() && *contract == decision.contract);
  const Tenant* tenant = policy().tenant_of(request.account);
  require(tenant && tenant->name == contract->tenant);
  for (std::uint32_t gpus : contract->gpus.sizes()) require(tenant->gpus.sizes().contains(gpus));
  Sizes now = request.sizes;
  if (decision.changes.per_job) now.per_job = decision.changes.per_job;
  if (decision.changes.per_node) now.per_node = decision.changes.per_node;
  if (decision.changes.per_task) now.per_task = decision.changes.per_task;
  if (decision.changes.tasks) now.tasks = decision.changes.tasks;
  check_update(*contract, now, input);
  return 0;
}
