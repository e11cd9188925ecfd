// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/class_book.h"

#include <algorithm>
#include <iterator>

namespace bellows {
namespace {

constexpr std::size_t kLongestName = 128;

// What sbatch calls a job that its user did not name: such jobs have nothing in common.
bool is_no_name(std::string_view name) {
  return name.empty() || name == "wrap" || name == "sbatch" || name == "bash" || name == "sh";
}

}  // namespace

std::optional<ClassKey> class_key(const SlurmJob& job, const Contract& contract,
                                  const std::string& gpu_type) {
  const bool is_said = !contract.job_class.empty();
  const std::string& name = is_said ? contract.job_class : job.name;
  if (name.size() > kLongestName || (!is_said && is_no_name(name))) return std::nullopt;
  return ClassKey{.uid = job.uid,
                  .tenant = contract.tenant,
                  .partition = job.partition,
                  .gpu_type = gpu_type,
                  .framework = contract.framework + ":" + contract.framework_version,
                  .name = name,
                  .is_said = is_said};
}

const JobClass* ClassBook::find(const ClassKey& key) const {
  const auto known = classes_.find(key);
  return known == classes_.end() ? nullptr : &known->second.job_class;
}

JobClass& ClassBook::at(const ClassKey& key, std::time_t now) {
  if (!classes_.contains(key)) make_room(key.uid);
  Known& known = classes_[key];
  known.heard = now;
  return known.job_class;
}

void ClassBook::forget_before(std::time_t now) {
  std::erase_if(classes_,
                [now](const auto& entry) { return entry.second.heard + kRemembered < now; });
}

void ClassBook::make_room(uid_t uid) {
  const auto longest_ago = [](const auto& a, const auto& b) {
    return a.second.heard < b.second.heard;
  };
  const auto first = classes_.lower_bound(ClassKey{.uid = uid});
  const auto last = std::find_if(first, classes_.end(),
                                 [uid](const auto& entry) { return entry.first.uid != uid; });
  // A user with a million names loses only what is of that user.
  if (static_cast<std::size_t>(std::distance(first, last)) >= kMostOfUser)
    classes_.erase(std::min_element(first, last, longest_ago));
  else if (classes_.size() >= kMost)
    classes_.erase(std::min_element(classes_.begin(), classes_.end(), longest_ago));
}

}  // namespace bellows
