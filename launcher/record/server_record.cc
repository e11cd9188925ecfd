// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/server_record.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/fd.h"
#include "common/text.h"
#include "launcher/record/json_number.h"

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 4096;
constexpr const char* kName = "/server.json";
/// In seconds: the launcher writes one each three.
constexpr double kGoodFor = 30;
/// Larger ones would fill lines of digits.
constexpr double kMostMeasure = 1e15;

Status read_number(const json& record, const char* key, std::uint64_t most, std::uint64_t& out) {
  const auto number = whole_number_in(record, key);
  if (!number) return number.error();
  if (*number > most)
    return Error{ErrorKind::corrupt, fmt::format("its \"{}\" is larger than {}", key, most)};
  out = *number;
  return {};
}

Status read_measure(const json& record, const char* key, double& out) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number() || !(found->get<double>() >= 0) ||
      !(found->get<double>() <= kMostMeasure))
    return Error{ErrorKind::corrupt,
                 fmt::format("its \"{}\" is not a number from 0 to {:.0e}", key, kMostMeasure)};
  out = found->get<double>();
  return {};
}

}  // namespace

bool ServerRecord::tells_of(std::uint32_t job_id, std::uint32_t restarts, double now) const {
  return job == job_id && restart == restarts && std::abs(now - time) <= kGoodFor;
}

std::string ServerRecord::to_json() const {
  return json{{"time", time},           {"job", job},
              {"restart", restart},     {"learners", learners},
              {"updates", updates},     {"updates_per_second", updates_per_second},
              {"staleness", staleness}, {"most_staleness", most_staleness}}
      .dump();
}

Result<ServerRecord> ServerRecord::parse(std::string_view text) {
  const auto record = json::parse(text, nullptr, false);
  if (!record.is_object()) return Error{ErrorKind::corrupt, "it is not a JSON object"};
  ServerRecord out;
  std::uint64_t job = 0, restart = 0;
  for (const Status& status :
       {read_number(record, "job", UINT32_MAX, job),
        read_number(record, "restart", UINT32_MAX, restart),
        read_number(record, "learners", UINT32_MAX, out.learners),
        read_number(record, "updates", UINT64_MAX, out.updates),
        read_number(record, "most_staleness", UINT64_MAX, out.most_staleness),
        read_measure(record, "time", out.time),
        read_measure(record, "updates_per_second", out.updates_per_second),
        read_measure(record, "staleness", out.staleness)})
    if (!status) return status.error();
  out.job = static_cast<std::uint32_t>(job);
  out.restart = static_cast<std::uint32_t>(restart);
  return out;
}

Status ServerRecord::write(const std::string& checkpoint_dir, Access access) const {
  return replace_file(checkpoint_dir + kName, to_json() + "\n", file_mode(access));
}

std::optional<ServerRecord> ServerRecord::read(const std::string& checkpoint_dir) {
  const auto text = read_file(checkpoint_dir + kName, kMostBytes);
  if (!text) return std::nullopt;
  auto record = parse(*text);
  return record ? std::optional(*record) : std::nullopt;
}

std::string ServerRecord::to_string() const {
  return fmt::format("{}, {:.0f} updates/s, staleness {:.1f} (at most {})",
                     counted(learners, "learner"), updates_per_second, staleness, most_staleness);
}

}  // namespace bellows
