// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/lua/hook.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "jobsubmit/lua/library.h"
#include "jobsubmit/lua/objects.h"
#include "jobsubmit/lua/sandbox.h"
#include "jobsubmit/lua/watch.h"

namespace bellows {

/// One call, for the C functions below it.
struct LuaCall {
  const char* hook = nullptr;  ///< null: only the script itself is run
  std::array<LuaFields*, kLuaObjects> shown{};
  HookOutcome outcome;
  bool has_submit = false;
  bool has_modify = false;
  /// Null: likely mistakes are not looked for.
  const std::vector<LuaComparison>* comparisons = nullptr;
  LuaObjects objects{};

  static LuaCall& of(lua_State* L) { return *static_cast<LuaCall*>(LuaSandbox::of(L).argument()); }
};

namespace {

constexpr std::size_t kMostSource = 256 * 1024;
constexpr std::size_t kMostMessage = 512;
constexpr std::size_t kMostLines = 16;
constexpr std::size_t kMostLine = 256;
constexpr std::chrono::milliseconds kMostTime{3};
/// Of the compiler, in which no instructions are counted; the size of the source bounds it.
constexpr LuaLimits kCompileLimits{1000000, 16 << 20, std::chrono::seconds(1)};

enum Slot : lua_Integer { kChunk = kLuaFreeSlot, kFirstObject };

void refuse_with(HookOutcome& outcome, std::string_view message) {
  outcome.refused = true;
  outcome.message = one_line(message, kMostMessage);
  if (outcome.message.empty()) outcome.message = "this site's rules refuse the job";
}

}  // namespace

LuaFields* shown(lua_State* L, LuaObject object) {
  return LuaCall::of(L).shown[static_cast<std::size_t>(object)];
}

int refuse_lua_call(lua_State* L, std::string_view message) {
  refuse_with(LuaCall::of(L).outcome, message);
  return LuaSandbox::of(L).stop(L);
}

namespace {

/// What the compiler is given.
struct Script {
  const LuaSettings& settings;
  std::span<const LuaField> fields;
};

int refuse(lua_State* L) {
  std::size_t size = 0;
  const char* message = luaL_checklstring(L, 1, &size);
  return refuse_lua_call(L, {message, size});
}

int log(lua_State* L) {
  std::size_t size = 0;
  const char* line = luaL_checklstring(L, 1, &size);
  std::vector<std::string>& lines = LuaCall::of(L).outcome.log;
  if (lines.size() < kMostLines)
    lines.push_back(one_line({line, size}, kMostLine));
  else if (lines.size() == kMostLines)
    lines.push_back("(and more)");
  LuaSandbox::of(L).charge(L, 16);
  return 0;
}

void add_builtin(lua_State* L, const char* name, lua_CFunction function) {
  lua_pushcfunction(L, function);
  lua_setfield(L, -2, name);
}

LuaObjects objects_of(std::span<const LuaField> fields) {
  return {kFirstObject, {fields, fields, tenant_fields(), now_fields()}};
}

int compile(lua_State* L) {
  const Script& script = *static_cast<const Script*>(lua_touserdata(L, 1));
  const std::string& source = script.settings.source;
  const std::string name = "@" + script.settings.path;
  // "t": bytecode is not checked when it is loaded, and can do anything.
  if (luaL_loadbufferx(L, source.data(), source.size(), name.c_str(), "t") != LUA_OK)
    return lua_error(L);
  lua_rawseti(L, LUA_REGISTRYINDEX, kChunk);
  const LuaObjects objects = objects_of(script.fields);
  for (std::size_t i = 0; i < kLuaObjects; ++i) {
    push_lua_object(L, static_cast<LuaObject>(i), objects.fields[i]);
    lua_rawseti(L, LUA_REGISTRYINDEX, kFirstObject + static_cast<lua_Integer>(i));
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, kLuaBuiltins);
  add_builtin(L, "refuse", guarded<refuse>);
  add_builtin(L, "log", guarded<log>);
  lua_rawgeti(L, LUA_REGISTRYINDEX, kFirstObject + static_cast<lua_Integer>(LuaObject::now));
  lua_setfield(L, -2, "now");
  return 0;
}

void look_for_slips(lua_State* L, lua_Debug* where) {
  LuaCall& call = LuaCall::of(L);
  if (!call.comparisons) return;
  for (const LuaComparison& one : *call.comparisons) {
    if (one.line != where->currentline) continue;
    lua_getinfo(L, "S", where);
    if (one.function != where->linedefined) continue;
    std::string slip = slip_in(L, where, one, call.objects);
    if (slip.empty()) continue;
    slip = fmt::format("{}:{}: {}", where->source + 1, one.line, slip);
    std::vector<std::string>& slips = call.outcome.slips;
    if (std::find(slips.begin(), slips.end(), slip) == slips.end()) slips.push_back(slip);
  }
}

void take_answer(lua_State* L, const char* hook) {
  std::size_t size = 0;
  switch (lua_type(L, -1)) {
    case LUA_TNIL:
      return;
    case LUA_TSTRING: {
      const char* message = lua_tolstring(L, -1, &size);
      refuse_with(LuaCall::of(L).outcome, {message, size});
      return;
    }
    default:
      luaL_error(L, "%s must return nothing, or a text to refuse the job, but not a %s", hook,
                 luaL_typename(L, -1));
  }
}

/// Pushes the function of this name among the globals at `globals`, or nil.
bool push_hook(lua_State* L, int globals, const char* name) {
  const int type = lua_getfield(L, globals, name);
  if (type != LUA_TNIL && type != LUA_TFUNCTION)
    luaL_error(L, "%s is a %s and should be a function", name, lua_typename(L, type));
  return type == LUA_TFUNCTION;
}

/// Runs the script on new globals, then the hook that it has defined.
int run_script(lua_State* L) {
  LuaCall& call = LuaCall::of(L);
  lua_newtable(L);
  const int globals = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, kLuaEnvironment);
  lua_setmetatable(L, globals);
  lua_rawgeti(L, LUA_REGISTRYINDEX, kChunk);
  lua_pushvalue(L, globals);
  lua_setupvalue(L, -2, 1);  // _ENV, which is always the first of a script
  lua_call(L, 0, 0);
  call.has_submit = push_hook(L, globals, "submit");
  call.has_modify = push_hook(L, globals, "modify");
  if (!call.hook || !push_hook(L, globals, call.hook)) return 0;
  int arguments = 0;
  for (const LuaObject object : {LuaObject::job, LuaObject::change, LuaObject::tenant}) {
    const bool there = call.shown[static_cast<std::size_t>(object)] != nullptr;
    if (!there && object == LuaObject::change) continue;
    if (there)
      lua_rawgeti(L, LUA_REGISTRYINDEX, kFirstObject + static_cast<lua_Integer>(object));
    else
      lua_pushnil(L);
    ++arguments;
  }
  lua_call(L, arguments, 1);
  take_answer(L, call.hook);
  return 0;
}

}  // namespace

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

LuaHook::LuaHook(const LuaSettings& settings, std::span<const LuaField> fields)
    : settings_(settings), fields_(fields) {}
LuaHook::LuaHook(LuaHook&&) noexcept = default;
LuaHook& LuaHook::operator=(LuaHook&&) noexcept = default;
LuaHook::~LuaHook() = default;

std::optional<std::string> LuaHook::prepare() {
  if (sandbox_) return std::nullopt;
  auto sandbox = std::make_unique<LuaSandbox>();
  if (watched_) sandbox->watch_lines(look_for_slips);
  Script script{settings_, fields_};
  auto failure = sandbox->run(guarded<compile>, &script, kCompileLimits);
  if (!failure) sandbox_ = std::move(sandbox);
  return failure;
}

Result<LuaHook> LuaHook::load(const LuaSettings& settings, std::span<const LuaField> fields) {
  const auto wrong = [&](std::string text) {
    text.resize(std::min(text.find('\n'), text.size()));
    if (!text.starts_with(settings.path + ":")) text = settings.path + ": " + text;
    return Error{ErrorKind::invalid, std::move(text)};
  };
  if (settings.source.size() > kMostSource)
    return wrong(fmt::format("a script has at most {} KiB", kMostSource / 1024));
  LuaHook hook(settings, fields);
  std::tm any{};
  any.tm_mday = 1;
  NowFields now(any);
  LuaCall call;
  call.shown[static_cast<std::size_t>(LuaObject::now)] = &now;
  const HookOutcome outcome = hook.run(call);
  if (outcome.failure) return wrong(*outcome.failure);
  if (outcome.refused) return wrong("it calls refuse outside submit and modify");
  if (!call.has_submit && !call.has_modify)
    return wrong("it defines neither submit(job, tenant) nor modify(job, change, tenant)");
  hook.has_submit_ = call.has_submit;
  hook.has_modify_ = call.has_modify;
  return hook;
}

void LuaHook::watch() {
  watched_ = true;
  comparisons_ = comparisons_in(settings_.source);
  sandbox_.reset();
}

HookOutcome LuaHook::run(LuaCall& call) {
  call.outcome.failure = prepare();
  if (call.outcome.failure) return std::move(call.outcome);
  const LuaLimits limits{settings_.max_instructions, std::size_t{settings_.max_memory_kib} * 1024,
                         kMostTime};
  auto failure = sandbox_->run(guarded<run_script>, &call, limits);
  // refuse() ends a call as an error does.
  if (failure && !(call.outcome.refused && !sandbox_->spent()))
    call.outcome.failure = std::move(failure);
  if (call.outcome.failure) {
    call.outcome.refused = false;
    call.outcome.message.clear();
  }
  if (sandbox_->spent()) sandbox_.reset();
  return std::move(call.outcome);
}

HookOutcome LuaHook::run(const char* hook, LuaFields& job, LuaFields* change, const Tenant* tenant,
                         const std::tm& now) {
  std::optional<TenantFields> tenant_shown;
  if (tenant) tenant_shown.emplace(*tenant);
  NowFields now_shown(now);
  LuaCall call;
  call.hook = hook;
  call.shown = {&job, change, tenant_shown ? &*tenant_shown : nullptr, &now_shown};
  if (watched_) {
    call.comparisons = &comparisons_;
    call.objects = objects_of(fields_);
  }
  return run(call);
}

HookOutcome LuaHook::submit(LuaFields& job, const Tenant* tenant, const std::tm& now) {
  return has_submit_ ? run("submit", job, nullptr, tenant, now) : HookOutcome{};
}

HookOutcome LuaHook::modify(LuaFields& job, LuaFields& change, const Tenant* tenant,
                            const std::tm& now) {
  return has_modify_ ? run("modify", job, &change, tenant, now) : HookOutcome{};
}

}  // namespace bellows
