// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/result.h"
#include "jobsubmit/lua/slips.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

class LuaSandbox;
struct LuaCall;

enum class LuaKind { text, number, flag, list };

/// One field that scripts see. The table of them is static; a field's place in it is its index.
struct LuaField {
  const char* name;
  LuaKind kind;
  bool writable;
};

using LuaList = std::vector<std::string>;
/// In the order of LuaKind.
using LuaValue = std::variant<std::string, std::int64_t, bool, LuaList>;

/// The fields of one job or one change, for the time of a call. Scripts read through it and write
/// through it; nothing is copied that they do not ask for.
class LuaFields {
 public:
  virtual ~LuaFields() = default;
  /// Nothing: the field is not set, nil in Lua.
  virtual std::optional<LuaValue> get(std::size_t index) const = 0;
  /// Only for writable fields, with a value of the field's kind; nothing: clear it.
  virtual Status set(std::size_t index, std::optional<LuaValue> value) = 0;
};

/// What a hook has said about a job. What it wrote before a refusal or failure has been written:
/// callers drop it.
struct HookOutcome {
  bool refused = false;
  std::string message;                 ///< the refusal, for the user; never empty when refused
  std::vector<std::string> log;        ///< for slurmctld's log; bounded, without control bytes
  std::vector<std::string> slips;      ///< "FILE:LINE: ...", of a hook that is watched
  std::optional<std::string> failure;  ///< the script did not get to an answer; with a traceback
};

/// What a hook's `now` shows.
std::tm local_now();

/// A site's script, with its hooks submit(job, tenant) and modify(job, change, tenant).
///
/// Each call runs the whole script again with globals of its own, so that nothing a script keeps
/// about one user's job is there at the next; what stays between calls is compiled code and what
/// no script can change. A call that reached a limit costs the next one a new state.
///
/// Knows no Slurm. One thread at a time; cheap to move.
class LuaHook {
 public:
  /// Compiles the script and runs it once without calling a hook. `fields` are those of jobs and of
  /// changes, and outlive the object.
  /// invalid: "FILE:LINE: what is wrong"
  static Result<LuaHook> load(const LuaSettings& settings, std::span<const LuaField> fields);
  LuaHook(LuaHook&&) noexcept;
  LuaHook& operator=(LuaHook&&) noexcept;
  ~LuaHook();

  /// Makes calls report what is not an error in Lua and yet a mistake: a comparison that can only
  /// be false, as of a list with a text. For checks beforehand; calls then take longer.
  void watch();

  bool has_submit() const { return has_submit_; }
  bool has_modify() const { return has_modify_; }

  /// `tenant` may be null: nil in Lua. `now` is the local time, for scripts that go by office
  /// hours.
  HookOutcome submit(LuaFields& job, const Tenant* tenant, const std::tm& now);
  /// `job` as it stands; of `change`, the fields that are asked for are set.
  HookOutcome modify(LuaFields& job, LuaFields& change, const Tenant* tenant, const std::tm& now);

 private:
  LuaHook(const LuaSettings& settings, std::span<const LuaField> fields);
  std::optional<std::string> prepare();
  HookOutcome run(LuaCall& call);
  HookOutcome run(const char* hook, LuaFields& job, LuaFields* change, const Tenant* tenant,
                  const std::tm& now);

  LuaSettings settings_;
  std::span<const LuaField> fields_;
  bool has_submit_ = false;
  bool has_modify_ = false;
  bool watched_ = false;
  std::vector<LuaComparison> comparisons_;
  std::unique_ptr<LuaSandbox> sandbox_;  ///< null: to be made by the next call
};

}  // namespace bellows
