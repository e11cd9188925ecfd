// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/read/step_reader.h"
#include "checkpoint/store/retention.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_lock.h"
#include "checkpoint/store/store_place.h"
#include "checkpoint/system/file_ops.h"
#include "common/result.h"

namespace bellows {

/// The text of owner.json; empty: nobody ever owned the directory.
Result<std::string> read_owner(const std::string& dir);

/// What owner.json says.
struct StoreOwner {
  std::string attempt;
  double time = 0;  ///< when it became the owner, in seconds since 1970
};
/// Nothing: the text does not say who owns the directory.
std::optional<StoreOwner> parse_owner(const std::string& text);

/// Removes what has a chosen name in the directory, as far as it can be; the first failure.
Status remove_names(FileOps& ops, const std::string& dir,
                    const std::function<bool(const std::string&)>& chosen);

/// The part of the store that changes it: ownership, commit, retention. One attempt of one job; the
/// leader's agent uses all of it, the others only shard_path and begin_step. One thread at a time.
class StoreWriter {
 public:
  /// `ops` must outlive the writer.
  StoreWriter(FileOps& ops, StorePlace place, std::string attempt, Retention retention);

  /// The only attempt that may be fenced off; empty: the directory has no owner. Without this call,
  /// it is the one that owns the directory when its ownership is first asked for.
  void replace_only(std::string attempt) { replaces_ = std::move(attempt); }

  /// Makes the directory, fences off earlier attempts (owner.json) and removes what they left
  /// half-written, as far as that can be removed. May be called again after a failure; busy: the
  /// directory has another owner than the one to be replaced.
  Status take_ownership();

  /// newest_step, remembering the bad ones for the retention.
  Result<NewestStep> find(const Search& search);

  /// Where a rank's shard of a step is written before the commit.
  std::string shard_path(std::uint64_t step, std::uint32_t rank, std::uint32_t world) const;
  Status begin_step(std::uint64_t step);

  /// A step that is committed, and what went wrong after that.
  struct Committed {
    std::shared_ptr<const StepReader> step;
    std::vector<std::string> warnings;
  };

  /// Makes the step the newest, durably: checks the shards, writes the manifest, renames. On
  /// failure earlier steps are as they were. Takes the ownership first where that has failed. busy:
  /// a newer attempt owns the directory; invalid: the ranks' parts don't make whole arrays.
  Result<Committed> commit_step(std::uint64_t step, std::vector<ShardFile> shards);
  /// What is to be done after each commit and nobody need wait for: the virtual view, and removing
  /// old steps, which takes as long as a good part of a save. Adds to the warnings.
  void tidy(Committed* committed);
  /// Both. The value holds sentences about what went wrong after the commit (the `latest` link,
  /// removing old steps), which is not a reason to call it failed.
  Result<std::vector<std::string>> commit(std::uint64_t step, std::vector<ShardFile> shards);

  const std::string& dir() const { return dir_; }

 private:
  void note_owner();
  Status check_replaced_owner() const;
  Status write_owner();
  Status check_owner() const;
  bool brings_back(const std::string& name) const;
  Status collect_leftovers() const;
  Status collect_own_leftovers(std::uint64_t committed);
  Result<std::shared_ptr<const StepReader>> check_shards(const std::string& from,
                                                         const Manifest& manifest) const;
  Status write_text(const std::string& path, const std::string& text);
  Status write_manifest(const std::string& from, const Manifest& manifest);
  Status publish(const std::string& from, std::uint64_t step);
  void move_aside(const std::string& from, std::uint64_t step);
  Status move_latest(std::uint64_t step);
  Status remove_old(std::uint64_t committed);
  std::string tmp_path(const std::string& what) const;
  std::string gone_path(std::uint64_t step);

  FileOps& ops_;
  StorePlace place_;
  std::string dir_;
  Fd in_use_;
  std::string attempt_;
  Retention retention_;
  /// The attempt that may be fenced off; empty: nobody, or who can't be read.
  std::optional<std::string> replaces_;
  bool failed_to_own_ = false;
  std::string no_locks_;  ///< why nothing is locked at commits; empty: it is
  bool said_no_locks_ = false;
  std::set<std::uint64_t> bad_;
  std::optional<std::uint64_t> last_committed_;
  std::uint64_t gone_ = 0;  ///< steps moved out of the way
};

}  // namespace bellows
