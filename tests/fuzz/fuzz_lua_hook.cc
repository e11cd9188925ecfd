// SPDX-License-Identifier: Apache-2.0
/// Any text as a site's script: it is stopped in time, says only what may be shown, and leaves the
/// job's user as he is.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "jobsubmit/lua/hook.h"

namespace {

using namespace bellows;

constexpr LuaField kFields[] = {
    {"user_name", LuaKind::text, false}, {"framework", LuaKind::text, false},
    {"partition", LuaKind::text, true},  {"gpus", LuaKind::number, true},
    {"gpus_max", LuaKind::number, true}, {"requeue", LuaKind::flag, true},
    {"features", LuaKind::list, true},
};

void require(bool holds) {
  if (!holds) std::abort();
}

class Fields final : public LuaFields {
 public:
  Fields() {
    values_[0] = "alice";
    values_[3] = std::int64_t{4};
  }
  std::optional<LuaValue> get(std::size_t index) const override { return values_.at(index); }
  Status set(std::size_t index, std::optional<LuaValue> value) override {
    require(kFields[index].writable);
    require(!value || value->index() == static_cast<std::size_t>(kFields[index].kind));
    values_.at(index) = std::move(value);
    return {};
  }
  bool user_is_alice() const { return values_[0] == LuaValue("alice"); }

 private:
  std::array<std::optional<LuaValue>, std::size(kFields)> values_;
};

bool shows(const std::string& text, std::size_t most, bool lines) {
  return text.size() <= most && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
           return (c >= 0x20 && c != 0x7f) || (lines && c == '\n');
         });
}

void check(const HookOutcome& outcome) {
  require(outcome.refused == !outcome.message.empty());
  require(!(outcome.refused && outcome.failure));
  require(shows(outcome.message, 512, false));
  require(outcome.log.size() <= 17);
  for (const std::string& line : outcome.log) require(shows(line, 256, false));
  if (outcome.failure) require(shows(*outcome.failure, 2048, true));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  LuaSettings settings;
  settings.path = "f.lua";
  settings.source.assign(reinterpret_cast<const char*>(data), size);
  settings.max_instructions = 20000;
  settings.max_memory_kib = 256;
  auto hook = LuaHook::load(settings, kFields);
  if (!hook.ok()) {
    require(hook.error().text.starts_with("f.lua:"));
    return 0;
  }
  Tenant tenant;
  tenant.name = "t";
  std::tm now{};
  Fields job, change;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {
    check(hook->submit(job, &tenant, now));
    check(hook->modify(job, change, nullptr, now));
  }
  // Some milliseconds where nothing else runs.
  require(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  require(job.user_is_alice() && change.user_is_alice());
  return 0;
}
