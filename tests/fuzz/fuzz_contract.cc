// SPDX-License-Identifier: Apache-2.0
/// The grammars of --gpus-range, --batch-range, --job-class, --model, --pool, the contract and path
/// patterns: what is taken keeps its promises and reads back from its own spelling; what is not is
/// an error with a text.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract.h"
#include "common/gpus_range.h"
#include "common/model_names.h"
#include "common/pool_option.h"
#include "common/text.h"

namespace {

using namespace bellows;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_gpus(std::string_view text) {
  const auto range = GpusRange::parse(text);
  if (!range) return require(!range.error().text.empty());
  const auto& sizes = range->sizes();
  require(!sizes.empty() && sizes.front() >= 1 && sizes.back() <= GpusRange::kMost);
  require(std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) == sizes.end());
  for (const std::uint32_t size : sizes)
    require(range->contains(size) && range->clamp(size) == size);
  require(!range->contains(range->min() - 1) && !range->contains(range->max() + 1));
  require(range->clamp(0) == range->min() && range->clamp(UINT32_MAX) == range->max());
  const auto again = GpusRange::parse(range->to_string());
  require(again.ok() && *again == *range);
}

void check_batch(std::string_view text) {
  const auto range = BatchRange::parse(text);
  if (!range) return require(!range.error().text.empty());
  require(range->min >= 1 && range->min <= range->max && range->max <= BatchRange::kMost);
  const auto again = BatchRange::parse(range->to_string());
  require(again.ok() && *again == *range);
}

void check_models(std::string_view text) {
  const auto names = parse_model_names(text);
  if (!names) return require(!names.error().text.empty());
  require(!names->empty() && names->size() <= kMostModels);
  for (const std::string& name : *names) require(is_model_name(name));
  const std::string list = Contract::join_list(*names);
  require(list == text && Contract::split_list(list) == *names);
}

void check_pool(std::string_view text) {
  const auto pool = PoolOption::parse(text);
  if (!pool) return require(!pool.error().text.empty());
  require(pool_name_complaint(pool->name).empty() && text.starts_with(pool->name));
  require(pool->min <= pool->max && pool->max <= kMostPoolMembers);
  require(pool->is_keeper() == (text.find(':') != std::string_view::npos));
  const auto again = PoolOption::parse(pool->to_string());
  require(again.ok() && *again == *pool);
}

void check_class(std::string_view text) {
  const auto name = parse_job_class(text);
  if (!name) return require(!name.error().text.empty());
  require(*name == text && !name->empty() && name->size() <= 64);
}

void check_contract(std::string_view text) {
  const auto contract = Contract::parse(text);
  if (!contract) return require(!contract.error().text.empty());
  require(!contract->tenant.empty());
  const std::string line = contract->to_string();
  require(std::all_of(line.begin(), line.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
  const auto again = Contract::parse(line);
  require(again.ok() && *again == *contract);
}

void check_list(std::string_view text) {
  auto texts = Contract::split_list(text);
  // No list of a contract has empty texts.
  std::erase(texts, "");
  require(Contract::split_list(Contract::join_list(texts)) == texts);
}

void check_path(std::string_view text) {
  const auto path = expand_path(text, "u", "a", "7");
  require(path.ok() ? path->size() <= text.size() : !path.error().text.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_gpus(text);
  check_batch(text);
  check_models(text);
  check_class(text);
  check_pool(text);
  check_contract(text);
  check_list(text);
  check_path(text);
  return 0;
}
