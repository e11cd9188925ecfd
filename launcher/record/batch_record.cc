// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/batch_record.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/fd.h"
#include "launcher/record/json_number.h"

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 4096;

Result<std::uint64_t> number_in(const json& record, const char* key, const char* what,
                                std::uint64_t most) {
  auto number = whole_number_in(record, key);
  if (!number || (*number >= 1 && *number <= most)) return number;
  return Error{ErrorKind::corrupt, fmt::format("its {} is not from 1 to {}", what, most)};
}

Result<OrderedBatch::Planned> planned_in(const json& record) {
  if (!record.is_object()) return Error{ErrorKind::corrupt, "its \"planned\" is not an object"};
  const auto batch = number_in(record, "batch", "planned batch", BatchRange::kMost);
  if (!batch) return batch.error();
  const auto gpus = number_in(record, "gpus", "number of GPUs", UINT32_MAX);
  if (!gpus) return gpus.error();
  return OrderedBatch::Planned{*batch, static_cast<std::uint32_t>(*gpus)};
}

}  // namespace

BatchRecord::BatchRecord(const std::string& checkpoint_dir, Access access)
    : dir_(checkpoint_dir), path_(checkpoint_dir + "/batch.json"), access_(access) {}

Result<OrderedBatch> BatchRecord::parse(std::string_view text) {
  const auto record = json::parse(text, nullptr, false);
  if (!record.is_object()) return Error{ErrorKind::corrupt, "it is not a JSON object"};
  OrderedBatch ordered;
  const auto planned = record.find("planned");
  const bool has_plan = planned != record.end() && !planned->is_null();
  if (has_plan) {
    const auto found = planned_in(*planned);
    if (!found) return found.error();
    ordered.planned = *found;
  }
  if (has_plan && !record.contains("batch")) return ordered;
  const auto batch = number_in(record, "batch", "batch", BatchRange::kMost);
  if (!batch) return batch.error();
  ordered.batch = *batch;
  return ordered;
}

std::string BatchRecord::to_json(const OrderedBatch& ordered) {
  json record = json::object();
  if (ordered.batch) record["batch"] = *ordered.batch;
  if (ordered.planned)
    record["planned"] = {{"batch", ordered.planned->batch}, {"gpus", ordered.planned->gpus}};
  return record.dump();
}

Result<OrderedBatch> BatchRecord::read(const std::optional<Contract>& contract) const {
  const auto text = read_file(path_, kMostBytes);
  if (!text && text.error().kind == ErrorKind::not_found) return OrderedBatch();
  if (!text && text.error().kind != ErrorKind::invalid) return text.error();
  const auto ordered = text ? parse(*text) : Result<OrderedBatch>(text.error());
  if (!ordered)
    return Error{ErrorKind::corrupt,
                 fmt::format("{} is not the record of a batch: {}", path_, ordered.error().text)};
  const auto range = contract ? contract->batch : std::nullopt;
  const std::optional<std::uint64_t> planned =
      ordered->planned ? std::optional(ordered->planned->batch) : std::nullopt;
  for (const auto& batch : {ordered->batch, planned})
    if (batch && !(range && range->contains(*batch)))
      return Error{ErrorKind::denied,
                   fmt::format("{} has a batch of {}, and the job's contract has {}", path_, *batch,
                               range ? range->to_string() : "no --batch-range")};
  return *ordered;
}

Status BatchRecord::write(const OrderedBatch& ordered) const {
  if (ordered.any()) return replace_file(path_, to_json(ordered) + "\n", file_mode(access_));
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return errno_error("remove", path_);
  return sync_directory(dir_);
}

}  // namespace bellows
