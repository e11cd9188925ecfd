// SPDX-License-Identifier: Apache-2.0
/// A job for Lua hooks, without Slurm.
#pragma once

#include <criterion/criterion.h>

#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "jobsubmit/lua/hook.h"
#include "tests/unit/support/text_support.h"

namespace bellows {

inline constexpr LuaField kJobFields[] = {
    {"user_name", LuaKind::text, false},   {"account", LuaKind::text, true},
    {"partition", LuaKind::text, true},    {"framework", LuaKind::text, false},
    {"gpus", LuaKind::number, true},       {"gpus_max", LuaKind::number, false},
    {"time_limit", LuaKind::number, true}, {"batch", LuaKind::flag, false},
    {"requeue", LuaKind::flag, true},      {"features", LuaKind::list, true},
};

/// Fields in memory. Clearing the account is an error, to have one.
class JobFields final : public LuaFields {
 public:
  std::optional<LuaValue> get(std::size_t index) const override { return values_[index]; }
  Status set(std::size_t index, std::optional<LuaValue> value) override {
    if (!value && std::string_view(kJobFields[index].name) == "account")
      return Error{ErrorKind::invalid, "a job needs an account"};
    values_[index] = std::move(value);
    return {};
  }

  std::optional<LuaValue>& operator[](std::string_view name) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (kJobFields[i].name == name) return values_[i];
    cr_assert_fail("no field %s", std::string(name).c_str());
    return values_[0];
  }
  std::string text(std::string_view name) {
    const auto& value = (*this)[name];
    return value ? std::get<std::string>(*value) : "(none)";
  }

 private:
  std::array<std::optional<LuaValue>, std::size(kJobFields)> values_;
};

inline LuaSettings lua_settings(std::string source) {
  LuaSettings settings;
  settings.path = "s.lua";
  settings.source = std::move(source);
  return settings;
}

inline LuaHook good_hook(std::string source) {
  auto hook = LuaHook::load(lua_settings(std::move(source)), kJobFields);
  cr_assert(hook.ok(), "%s", hook.ok() ? "" : hook.error().text.c_str());
  return *std::move(hook);
}

/// A Monday.
inline std::tm at_hour(int hour) {
  std::tm now{};
  now.tm_year = 122;
  now.tm_mon = 10;
  now.tm_mday = 7;
  now.tm_hour = hour;
  now.tm_min = 30;
  now.tm_wday = 1;
  now.tm_yday = 310;
  return now;
}

/// The outcome of a submit hook with this body, for an empty job.
inline HookOutcome submit_body(const std::string& body) {
  LuaHook hook = good_hook("function submit(job, tenant)\n" + body + "\nend");
  JobFields job;
  return hook.submit(job, nullptr, at_hour(10));
}

inline void expect_says(const HookOutcome& outcome, const char* message) {
  cr_expect(outcome.message == message, "\"%s\" instead of \"%s\"; %s", outcome.message.c_str(),
            message, outcome.failure ? outcome.failure->c_str() : "no failure");
}

}  // namespace bellows
