// SPDX-License-Identifier: Apache-2.0
/// What a client may put into a job: NUL-separated texts for the options, the account, the GPU
/// fields and the numbers; and, if it begins with "c=" or "p=", a last one for the container or the
/// pool. Whatever is admitted must be within the tenant's limits, also after an update, and its
/// contract must read back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/pool_option.h"
#include "common/text.h"
#include "jobsubmit/admission/admission.h"

namespace {

using namespace bellows;

const Policy& policy() {
  static const Policy policy = *load_policy(
      "version: 1\n"
      "checkpoint_dir: /c/%u/%a/%j\n"
      "frameworks: {a: {versions: [\"1\", \"2\"]}, b: }\n"
      "tenants:\n"
      "  t: {frameworks: [\"a:1\", b], gpus: {min: 2, max: 64, step: 2, start: 4},\n"
      "      pools: {members: 4}}\n"
      "  u: \n"
      "  v: {gpus: {types: [x, y], max_nodes: 3, shrink_below_start: false, start: 2},\n"
      "      sizing: {time: {max: 60}, partitions: [\"p*\"], qos_allowed: [q], signal_lead: 9,\n"
      "               per_gpu: {cpus: 2, memory: 1G}}}\n"
      "  w: {gpus: {sizes: whole_nodes, gpus_per_node: 4, max: 32, range: \"4-16:4\"},\n"
      "      pools: {members: 0}}\n"
      "  n: {batch_range: false, partitions: [p], framework_limits: {a: {gpus: {max: 3}}}}\n"
      "  o: {images: [\"/own/*\"], gpus: {sizes: whole_nodes, gpus_per_node: 4, types: [x]}}\n"
      "models:\n"
      "  - {name: m, tenant: t, source: /m, visible: [u]}\n"
      "  - {name: all, tenant: v, source: /all, visible: [\"*\"]}\n",
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

bool says_gpus(const Sizes& sizes) {
  return sizes.per_job || sizes.per_node || sizes.per_task || sizes.per_socket;
}

/// Only the tenant's own images, and never a way around them.
void check_image(const Contract& contract, const Tenant& tenant) {
  if (contract.image.empty()) return;
  require(!tenant.images.empty() && contract.image.starts_with("/own/"));
  require(contract.image.find("/../") == std::string::npos && !contract.image.ends_with("/.."));
}

/// Only models that the tenant sees, and on GPUs only what is named.
void check_models(const Contract& contract) {
  require(contract.extra_value(Contract::kModelOnKey).empty() ||
          !contract.extra_value(Contract::kModelsKey).empty());
  for (const std::string& name : Contract::split_list(contract.extra_value(Contract::kModelsKey))) {
    const SiteModel* model = policy().find_model(contract.tenant, name);
    require(model && model->is_seen_by(contract.tenant));
  }
}

/// A keeper has no GPUs and comes back, and its pool has no more members than the tenant's may.
void check_pool(const Request& request, const Tenant& tenant, const Decision& decision) {
  const std::string_view text = decision.contract.extra_value(Contract::kPoolKey);
  require(text.empty() == !request.pool);
  if (!request.pool) return;
  const auto pool = PoolOption::parse(text);
  require(pool.ok() && tenant.pool_members > 0 && pool->max <= tenant.pool_members);
  require(!pool->is_keeper() || (decision.contract.gpus.is_none() && decision.requeue));
}

void check_update(const Contract& contract, const Sizes& now, Input& input) {
  Admitted job;
  job.contract = contract;
  job.sizes = now;
  job.has_run = true;
  Update update;
  update.sizes = input.sizes();
  update.partition = input.text();
  update.qos = input.text();
  update.time_limit = input.number();
  const UpdateDecision decision = decide_update(&policy(), job, update);
  require(decision.refused.has_value() == !decision.message.empty());
  require(printable(decision.message));
  if (decision.refused) return;
  const Tenant* tenant = policy().find_tenant(contract.tenant);
  const std::uint32_t most = tenant->sizing.time_max_min;
  require(!update.time_limit || most == 0 || *update.time_limit <= most);
  if (contract.gpus.is_none()) {
    const auto gpus = count_gpus(merged(now, update.sizes));
    require(!decision.changes.per_job && (!says_gpus(update.sizes) || (gpus.ok() && !*gpus)));
  }
  if (!decision.changes.per_job) return;
  Sizes next;
  next.per_job = decision.changes.per_job;
  const auto gpus = count_gpus(next);
  require(gpus.ok() && *gpus && contract.gpus.contains((*gpus)->gpus));
}

/// What no job may have, whatever it says.
void check_rights(const Request& request, const Decision& decision) {
  const Contract& contract = decision.contract;
  const Changes& changes = decision.changes;
  const Tenant* tenant = policy().find_tenant(contract.tenant);
  require(tenant && tenant->accounts.front() == request.account);
  const GpuLimits& limits = tenant->limits_for(contract.framework, contract.framework_version);
  check_image(contract, *tenant);
  check_models(contract);
  check_pool(request, *tenant, decision);
  const bool none = contract.gpus.is_none();
  require(!none || (request.keeps_gpus() && !changes.per_job && !changes.tasks));
  for (std::uint32_t gpus : contract.gpus.sizes()) require(none || limits.sizes.contains(gpus));
  require(tenant->wide_batch || !contract.batch);
  const auto nodes = changes.max_nodes ? changes.max_nodes : request.sizes.max_nodes;
  require(limits.max_nodes == 0 || (nodes && *nodes <= limits.max_nodes));
  const auto minutes = changes.time_limit ? changes.time_limit : request.time_limit;
  const std::uint32_t most = tenant->sizing.time_max_min;
  require(most == 0 || (minutes && *minutes <= most));
  if (limits.types.empty()) return;
  Sizes sizes = request.sizes;
  if (changes.per_job) sizes.per_job = changes.per_job;
  if (changes.per_node) sizes.per_node = changes.per_node;
  if (changes.per_task) sizes.per_task = changes.per_task;
  const auto gpus = count_gpus(sizes);
  require(gpus.ok() && gpus->has_value() != none);
  if (none) return;
  for (const std::string& type : (*gpus)->types)
    require(std::count(limits.types.begin(), limits.types.end(), type) == 1);
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
  request.batch_range = input.text();
  request.partition = input.text().value_or("");
  request.qos = input.text();
  request.time_limit = input.number();
  if (input.texts.back().starts_with("j=")) request.job_class = input.texts.back().substr(2);
  if (input.texts.back().starts_with("c=")) request.container = input.texts.back().substr(2);
  if (input.texts.back().starts_with("m=")) request.models = input.texts.back().substr(2);
  if (request.models && request.models->ends_with("@gpu")) request.model_on = "gpu";
  if (request.model_on) request.models->resize(request.models->size() - 4);
  if (input.texts.back().starts_with("p=")) request.pool = input.texts.back().substr(2);
  if (!request.wants_bellows()) return 0;
  const Decision decision = decide(&policy(), "", request);
  require(printable(decision.message) && decision.message.size() < 4096);
  if (decision.refused) {
    require(!decision.message.empty());
    return 0;
  }
  const auto contract = Contract::parse(decision.contract.to_string());
  require(contract.ok() && *contract == decision.contract);
  check_rights(request, decision);
  Sizes now = request.sizes;
  if (decision.changes.per_job) now.per_job = decision.changes.per_job;
  if (decision.changes.per_node) now.per_node = decision.changes.per_node;
  if (decision.changes.per_task) now.per_task = decision.changes.per_task;
  if (decision.changes.tasks) now.tasks = decision.changes.tasks;
  check_update(*contract, now, input);
  return 0;
}
