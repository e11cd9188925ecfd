// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <map>
#include <optional>
#include <string>

#include "common/contract.h"
#include "elastic/policy/job_class.h"
#include "slurm/job.h"

namespace bellows {

/// Which jobs are of one class: those that one user submits for one tenant, partition and type of
/// GPUs with the same --job-class or, without one, under the same name. What others say never
/// counts. A value.
struct ClassKey {
  uid_t uid = 0;
  std::string tenant{};
  std::string partition{};
  std::string gpu_type{};
  std::string framework{};  ///< NAME:VERSION
  std::string name{};
  bool is_said = false;  ///< by --job-class

  auto operator<=>(const ClassKey&) const = default;
};

/// Nothing of a job that has no name of its own, or an overlong one.
std::optional<ClassKey> class_key(const SlurmJob& job, const Contract& contract,
                                  const std::string& gpu_type);

/// What bellowsd knows of classes: as many as fit, of each user and in all, those of which it heard
/// last. A value type.
class ClassBook {
 public:
  static constexpr std::size_t kMostOfUser = 64;
  static constexpr std::size_t kMost = 4096;
  /// Seconds after which one is forgotten of which nothing was heard.
  static constexpr std::time_t kRemembered = 7 * 24 * 3600;

  /// Null: nothing is known of it.
  const JobClass* find(const ClassKey& key) const;
  /// For what was just heard of it.
  JobClass& at(const ClassKey& key, std::time_t now);
  void forget_before(std::time_t now);
  std::size_t size() const { return classes_.size(); }

 private:
  struct Known {
    JobClass job_class;
    std::time_t heard = 0;
  };
  using Classes = std::map<ClassKey, Known>;  ///< a user's lie together

  void make_room(uid_t uid);

  Classes classes_;
};

}  // namespace bellows
