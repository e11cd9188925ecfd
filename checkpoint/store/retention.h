// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/system/file_ops.h"
#include "common/result.h"

namespace bellows {

/// How many committed steps a directory keeps.
struct Retention {
  std::uint32_t keep = 3;        ///< the newest so many that verify; 0 counts as 1
  std::uint64_t keep_every = 0;  ///< besides, every step divisible by this; 0: none
};

/// The steps to remove, oldest first. A pure function; `steps` ascend, without repetition, and
/// `bad` are those known not to verify.
///
/// Kept are the newest `keep` good steps, every good step divisible by `keep_every`, and all that
/// `named` holds, good or bad. Bad steps don't count among the `keep`, and stay for a look until
/// they are older than all of these. So the newest good step is never removed, nor a bad one that
/// is newer, nor anything while there are fewer than `keep` good steps.
std::vector<std::uint64_t> steps_to_remove(const std::vector<std::uint64_t>& steps,
                                           const std::set<std::uint64_t>& bad,
                                           const std::set<std::uint64_t>& named,
                                           const Retention& retention);

/// Names that people gave to steps, to keep them: links DIR/named/NAME -> ../step-N.
using StepNames = std::map<std::string, std::uint64_t>;

/// Letters, digits and ._+- only, at most 128, at the beginning a letter or a digit; not a number,
/// not like a step's directory, not "latest": those mean a step already.
bool is_step_name(std::string_view name);

/// Every link in DIR/named whose target ends in the name of a step's directory, whether the step
/// exists or not, and whatever the link's own name, unless it begins with a dot; other things there
/// are skipped. A missing DIR/named has none. An error means that names may be unknown: then no
/// step may be removed.
Result<StepNames> read_step_names(const std::string& dir);

/// The steps of read_step_names.
Result<std::set<std::uint64_t>> named_steps(const std::string& dir);

/// Gives a step a name, durably; a name that is in use moves to the step in one go. The caller
/// holds the store's lock, so that the step can't be removed meanwhile. invalid: the name;
/// not_found: the step.
Status add_step_name(FileOps& ops, const std::string& dir, const std::string& name,
                     std::uint64_t step);

/// Takes a name away, durably; the step stays until the next retention. not_found: no such name.
Status remove_step_name(FileOps& ops, const std::string& dir, const std::string& name);

}  // namespace bellows
