// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/lua/sandbox.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <new>

#include "common/text.h"
#include "jobsubmit/lua/library.h"

namespace bellows {
namespace {

constexpr int kStep = 64;
constexpr std::size_t kMostFailure = 2048;
constexpr int kMostLevels = 200;
/// Garbage of so many bytes is kept from call to call before it is collected: collecting takes
/// longer than a usual hook.
constexpr std::size_t kMostGarbage = 64 * 1024;
/// For what is not a script's: the library, and the compiler.
constexpr LuaLimits kOwnLimits{1000000, 1 << 20, std::chrono::seconds(1)};

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// The message handler: the error's text with where it came from.
int trace(lua_State* L) {
  const char* text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : nullptr;
  if (!text) text = lua_pushfstring(L, "an error that is a %s", luaL_typename(L, 1));
  // Lua walks the whole stack for each line that it prints.
  lua_Debug deep;
  if (lua_getstack(L, kMostLevels, &deep))
    lua_pushfstring(L, "%s\n(more than %d nested calls)", text, kMostLevels);
  else
    luaL_traceback(L, L, text, 1);
  return 1;
}

int open_library(lua_State* L) {
  open_lua_library(L);
  return 0;
}

std::string shown_lines(std::string_view text) {
  const bool cut = text.size() > kMostFailure;
  std::vector<std::string> lines;
  for (std::string_view line : split(text.substr(0, cut ? kMostFailure - 3 : text.size()), '\n'))
    lines.push_back(one_line(line));
  return fmt::format("{}{}", fmt::join(lines, "\n"), cut ? "..." : "");
}

}  // namespace

LuaSandbox::LuaSandbox() : state_(lua_newstate(allocate, this)) {
  if (!state_) throw std::bad_alloc();
  *static_cast<LuaSandbox**>(lua_getextraspace(state_.get())) = this;
  lua_gc(state_.get(), LUA_GCSTOP);
  if (run(open_library, nullptr, kOwnLimits)) throw std::bad_alloc();
}

void* LuaSandbox::allocate(void* self, void* block, std::size_t old_size, std::size_t size) {
  LuaSandbox& box = *static_cast<LuaSandbox*>(self);
  const std::size_t had = block ? old_size : 0;
  if (size == 0) {
    std::free(block);
    box.used_ -= had;
    return nullptr;
  }
  if (size > had) {
    // For a new block, Lua passes the kind of object that it is for as the old size.
    constexpr std::size_t kHead = 64;
    if (!block && old_size == LUA_TSTRING && size > kMostText + kHead) {
      if (box.stop_ == Stop::none) box.stop_ = Stop::text;
      return nullptr;
    }
    if (size - had > box.ceiling_ - std::min(box.used_, box.ceiling_)) {
      // Final: Lua collects and tries again, and must not continue in the memory so gained.
      box.ceiling_ = 0;
      if (box.stop_ == Stop::none) box.stop_ = Stop::memory;
      return nullptr;
    }
  }
  void* moved = std::realloc(block, size);
  if (moved) box.used_ += size - had;
  if (!moved && box.stop_ == Stop::none) box.stop_ = Stop::memory;
  return moved;
}

void LuaSandbox::begin(void* argument, const LuaLimits& limits) {
  limits_ = limits;
  stop_ = Stop::none;
  argument_ = argument;
  left_ = limits.instructions;
  ceiling_ = used_ + limits.memory;
  step_ = static_cast<int>(std::clamp<std::uint64_t>(limits.instructions, 1, kStep));
  cpu_began_.reset();
  began_ = std::chrono::steady_clock::now();
  lua_settop(state_.get(), 0);  // an exception may have kept end() from it
  lua_sethook(state_.get(), count, LUA_MASKCOUNT | (on_line_ ? LUA_MASKLINE : 0), step_);
}

void LuaSandbox::end() {
  lua_State* L = state_.get();
  lua_sethook(L, nullptr, 0, 0);
  lua_settop(L, 0);
  ceiling_ = SIZE_MAX;
  argument_ = nullptr;
  if (spent() || used_ < settled_ + kMostGarbage) return;
  lua_gc(L, LUA_GCCOLLECT);
  settled_ = used_;
}

std::optional<std::string> LuaSandbox::run(lua_CFunction body, void* argument,
                                           const LuaLimits& limits) {
  lua_State* L = state_.get();
  begin(argument, limits);
  lua_pushcfunction(L, trace);
  lua_pushcfunction(L, body);
  lua_pushlightuserdata(L, argument);
  const int status = lua_pcall(L, 1, 0, 1);
  std::optional<std::string> failure;
  if (status != LUA_OK || spent()) {
    std::string text = "it failed";
    std::size_t size = 0;
    // Lua's text has the place in the script, but after a memory error it says only that.
    if (status == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING) {
      const char* said = lua_tolstring(L, -1, &size);
      text.assign(said, size);
    } else if (spent()) {
      text = reason();
    } else if (status == LUA_ERRERR) {
      text = "its error was too large to be shown";
    }
    failure = shown_lines(text);
  }
  end();
  return failure;
}

std::string LuaSandbox::reason() const {
  switch (stop_) {
    case Stop::instructions:
      return fmt::format("it takes more than {} instructions", limits_.instructions);
    case Stop::memory:
      return fmt::format("it takes more than {} KiB of memory", limits_.memory / 1024);
    case Stop::text:
      return fmt::format("it makes a text of more than {} bytes", kMostText);
    case Stop::time:
      return fmt::format("it takes longer than {} milliseconds", limits_.time.count() / 1000);
    case Stop::none:
    case Stop::asked:
      break;
  }
  return "it has ended";
}

/// Time of this thread, so that a busy machine fails no hook. Its clock is a system call; the
/// wall clock is not, and while that is within the limit the other is too.
bool LuaSandbox::late() {
  if (std::chrono::steady_clock::now() - began_ < limits_.time) return false;
  if (!cpu_began_) cpu_began_ = cpu_time();
  return cpu_time() - *cpu_began_ >= limits_.time;
}

void LuaSandbox::count(lua_State* L, lua_Debug* where) {
  LuaSandbox& box = of(L);
  if (where->event == LUA_HOOKLINE) return box.on_line_(L, where);
  box.raise_if_stopped(L);
  box.charge(L, static_cast<std::uint64_t>(box.step_));
}

void LuaSandbox::charge(lua_State* L, std::uint64_t instructions) {
  if (instructions > left_ && stop_ == Stop::none) stop_ = Stop::instructions;
  left_ -= std::min(left_, instructions);
  if (stop_ == Stop::none && late()) stop_ = Stop::time;
  raise_if_stopped(L);
}

int LuaSandbox::stop(lua_State* L) {
  if (stop_ == Stop::none) stop_ = Stop::asked;
  raise_if_stopped(L);
  return 0;
}

void LuaSandbox::raise_if_stopped(lua_State* L) {
  if (stop_ == Stop::none) return;
  // From here on each instruction raises again, whoever has caught this error.
  lua_sethook(L, count, LUA_MASKCOUNT, 1);
  // In a hook, the script's function is at level 0; in a C function that it has called, at 1 or 2.
  int level = 0;
  for (luaL_where(L, level); level < 2 && lua_rawlen(L, -1) == 0; luaL_where(L, level)) {
    lua_pop(L, 1);
    ++level;
  }
  lua_pushstring(L, reason().c_str());
  lua_concat(L, 2);
  lua_error(L);
}

}  // namespace bellows
