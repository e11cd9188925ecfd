// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/policy_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "common/text.h"
#include "jobsubmit/lua/library.h"
#include "jobsubmit/lua/sandbox.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostSource = 64 * 1024;
constexpr std::size_t kMostError = 400;
constexpr double kMostMembers = 1e6;
constexpr std::size_t kMostNames = 64;
/// Of the compiler, in which no instructions are counted; the size of the source bounds it.
constexpr LuaLimits kCompileLimits{1'000'000, 16 << 20, std::chrono::seconds(1)};
/// Of a decision, of which there is one each second.
constexpr LuaLimits kLimits{1'000'000, 4 << 20, std::chrono::milliseconds(50)};

enum Slot : lua_Integer { kChunk = kLuaFreeSlot };

struct Script {
  const std::string& source;
  const std::string& file;
};

/// One call, for the C functions below it.
struct Call {
  const ScriptSignals* signals = nullptr;  ///< null: the script is only run
  std::vector<std::string>* names = nullptr;
  double members = 0;
};

int compile(lua_State* L) {
  const Script& script = *static_cast<const Script*>(lua_touserdata(L, 1));
  const std::string name = "@" + script.file;
  // "t": bytecode is not checked when it is loaded, and can do anything.
  if (luaL_loadbufferx(L, script.source.data(), script.source.size(), name.c_str(), "t") != LUA_OK)
    return lua_error(L);
  lua_rawseti(L, LUA_REGISTRYINDEX, kChunk);
  return 0;
}

void set(lua_State* L, const char* name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

void set_count(lua_State* L, const char* name, std::int64_t value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, name);
}

void push(lua_State* L, const ScriptMetric& metric) {
  lua_createtable(L, 0, 6);
  set(L, "sum", metric.sum);
  set(L, "mean", metric.sum / std::max(1U, metric.known));
  set(L, "median", metric.median);
  set(L, "largest", metric.largest);
  set_count(L, "known", metric.known);
  set_count(L, "missing", metric.missing);
}

void push(lua_State* L, const ScriptSignals& signals) {
  lua_createtable(L, 0, 7);
  set_count(L, "min", signals.min);
  set_count(L, "max", signals.max);
  set_count(L, "wanted", signals.wanted);
  set_count(L, "ready", signals.ready);
  set_count(L, "starting", signals.starting);
  set_count(L, "votes", signals.votes);
  lua_createtable(L, 0, static_cast<int>(signals.metrics.size()));
  for (const auto& [name, metric] : signals.metrics) {
    lua_pushlstring(L, name.data(), name.size());
    push(L, metric);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "metrics");
}

/// Those in the list `metrics`, where a script has one.
void take_names(lua_State* L, int globals, std::vector<std::string>& names) {
  const int type = lua_getfield(L, globals, "metrics");
  if (type == LUA_TNIL) return;
  if (type != LUA_TTABLE || lua_rawlen(L, -1) > kMostNames)
    luaL_error(L, "metrics must be a list of %d names at most", static_cast<int>(kMostNames));
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, -1));
  for (lua_Integer i = 1; i <= count; ++i) {
    if (lua_rawgeti(L, -1, i) != LUA_TSTRING) luaL_error(L, "metrics must be a list of names");
    names.emplace_back(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
}

/// Runs the script on new globals, then its function.
int run_script(lua_State* L) {
  Call& call = *static_cast<Call*>(lua_touserdata(L, 1));
  lua_newtable(L);
  const int globals = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, kLuaEnvironment);
  lua_setmetatable(L, globals);
  lua_rawgeti(L, LUA_REGISTRYINDEX, kChunk);
  lua_pushvalue(L, globals);
  lua_setupvalue(L, -2, 1);  // _ENV, which is always the first of a script
  lua_call(L, 0, 0);
  if (lua_getfield(L, globals, "members") != LUA_TFUNCTION)
    return luaL_error(L, "it must define members(signals), a function");
  if (call.names) take_names(L, globals, *call.names);
  if (!call.signals) return 0;
  push(L, *call.signals);
  lua_call(L, 1, 1);
  if (lua_type(L, -1) != LUA_TNUMBER)
    return luaL_error(L, "members must return a number, but not a %s", luaL_typename(L, -1));
  call.members = lua_tonumber(L, -1);
  // Written so that what is not a number fails it.
  if (!(call.members >= 0 && call.members <= kMostMembers))
    return luaL_error(L, "members must return a number from 0 to 1000000");
  return 0;
}

}  // namespace

PolicyScript::PolicyScript(std::string source, std::string file)
    : source_(std::move(source)), file_(std::move(file)) {}
PolicyScript::~PolicyScript() = default;

Status PolicyScript::prepare() {
  if (sandbox_) return {};
  auto sandbox = std::make_unique<LuaSandbox>();
  Script script{source_, file_};
  if (const auto failure = sandbox->run(guarded<compile>, &script, kCompileLimits))
    return of_script(*failure);
  sandbox_ = std::move(sandbox);
  return {};
}

/// The first line says what and where; the rest is the way there.
Error PolicyScript::of_script(std::string_view text) const {
  const std::string first = one_line(text.substr(0, text.find('\n')), kMostError);
  const bool has_place = first.starts_with(file_ + ":");
  return {ErrorKind::invalid, has_place ? first : fmt::format("{}: {}", file_, first)};
}

Result<double> PolicyScript::run(const ScriptSignals* signals, std::vector<std::string>* names) {
  try {
    if (const Status prepared = prepare(); !prepared) return prepared.error();
    Call call{.signals = signals, .names = names};
    const auto failure = sandbox_->run(guarded<run_script>, &call, kLimits);
    if (sandbox_->spent()) sandbox_.reset();
    if (failure) return of_script(*failure);
    return call.members;
  } catch (const std::bad_alloc&) {
    return of_script("there is no memory left for it");
  }
}

Result<double> PolicyScript::members(const ScriptSignals& signals) {
  return run(&signals, nullptr);
}

Result<std::unique_ptr<PolicyScript>> PolicyScript::load(std::string source,
                                                         const std::string& file) {
  std::unique_ptr<PolicyScript> script(new PolicyScript(std::move(source), file));
  if (script->source_.size() > kMostSource)
    return script->of_script(fmt::format("a script has at most {} KiB", kMostSource / 1024));
  if (const auto runs = script->run(nullptr, &script->names_); !runs) return runs.error();
  return script;
}

}  // namespace bellows::pool
