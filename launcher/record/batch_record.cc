// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/batch_record.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/fd.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

BatchRecord::BatchRecord(const std::string& checkpoint_dir, Access access)
    : dir_(checkpoint_dir), path_(checkpoint_dir + "/batch.json"), access_(access) {}

Result<std::uint64_t> BatchRecord::parse(std::string_view text) {
  const auto record = nlohmann::json::parse(text, nullptr, false);
  if (!record.is_object()) return Error{ErrorKind::corrupt, "it is not a JSON object"};
  const auto batch = record.find("batch");
  if (batch == record.end() || !batch->is_number_unsigned())
    return Error{ErrorKind::corrupt, "its \"batch\" is not a whole number"};
  const auto value = batch->get<std::uint64_t>();
  if (value >= 1 && value <= BatchRange::kMost) return value;
  return Error{ErrorKind::corrupt, fmt::format("its batch is not from 1 to {}", BatchRange::kMost)};
}

Result<std::optional<std::uint64_t>> BatchRecord::read(
    const std::optional<Contract>& contract) const {
  const auto text = read_file(path_, kMostBytes);
  if (!text && text.error().kind == ErrorKind::not_found) return std::optional<std::uint64_t>();
  if (!text && text.error().kind != ErrorKind::invalid) return text.error();
  const auto batch = text ? parse(*text) : Result<std::uint64_t>(text.error());
  if (!batch)
    return Error{ErrorKind::corrupt,
                 fmt::format("{} is not the record of a batch: {}", path_, batch.error().text)};
  if (contract && contract->batch && contract->batch->contains(*batch))
    return std::optional(*batch);
  return Error{
      ErrorKind::denied,
      fmt::format("{} has a batch of {}, and the job's contract has {}", path_, *batch,
                  contract && contract->batch ? contract->batch->to_string() : "no --batch-range")};
}

Status BatchRecord::write(std::optional<std::uint64_t> batch) const {
  if (batch)
    return replace_file(path_, nlohmann::json{{"batch", *batch}}.dump() + "\n", file_mode(access_));
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return errno_error("remove", path_);
  return sync_directory(dir_);
}

}  // namespace bellows
