// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "jobsubmit/lua/lua_api.h"

namespace bellows {

/// What one call may use before it is ended.
struct LuaLimits {
  std::uint64_t instructions;
  std::size_t memory;              ///< bytes it may allocate in all, garbage included
  std::chrono::microseconds time;  ///< of the processor, at most twice this
};

/// A Lua state in which a script can compute and do nothing else, for a bounded time, in bounded
/// memory. Errors in it are C++ exceptions (liblua5.4-c++), so destructors run.
///
/// Nothing is collected during a call: the memory limit is on all that a call allocates, which
/// also keeps a script from making the collector run over and over in a nearly full state.
///
/// One thread at a time.
class LuaSandbox {
 public:
  /// Longer texts are never made. Bounds each instruction and each C function that looks at one.
  static constexpr std::size_t kMostText = 8192;
  /// Longer lists are refused by each C function that walks one.
  static constexpr std::size_t kMostItems = 1000;

  /// Throws std::bad_alloc.
  LuaSandbox();
  LuaSandbox(const LuaSandbox&) = delete;
  LuaSandbox& operator=(const LuaSandbox&) = delete;

  /// Calls `body` with `argument` as its light userdata. What went wrong, with a traceback where
  /// there is one, or nothing. All use of the state that can raise an error belongs in a body.
  std::optional<std::string> run(lua_CFunction body, void* argument, const LuaLimits& limits);

  /// From now on `hook` is called for each line before it is run. It raises nothing.
  void watch_lines(lua_Hook hook) { on_line_ = hook; }

  /// A limit was reached: what the state holds is of no use any more.
  bool spent() const { return stop_ != Stop::none && stop_ != Stop::asked; }

  static LuaSandbox& of(lua_State* L) { return **static_cast<LuaSandbox**>(lua_getextraspace(L)); }
  void* argument() const { return argument_; }
  /// Counts work of a C function as so many instructions; raises an error at the limit.
  void charge(lua_State* L, std::uint64_t instructions);
  /// Ends the call from inside, past every pcall of the script.
  int stop(lua_State* L);
  /// Raises again what has ended the call; does nothing before.
  void raise_if_stopped(lua_State* L);

 private:
  enum class Stop { none, asked, instructions, memory, text, time };
  struct Close {
    void operator()(lua_State* L) const { lua_close(L); }
  };

  static void* allocate(void* self, void* block, std::size_t old_size, std::size_t size);
  static void count(lua_State* L, lua_Debug*);
  void begin(void* argument, const LuaLimits& limits);
  void end();
  bool late();
  std::string reason() const;

  std::size_t used_ = 0;
  std::size_t settled_ = 0;  ///< used after the last collection
  std::size_t ceiling_ = SIZE_MAX;
  std::uint64_t left_ = 0;  ///< instructions
  lua_Hook on_line_ = nullptr;
  int step_ = 1;  ///< instructions between two looks at the clock
  LuaLimits limits_{};
  std::chrono::steady_clock::time_point began_;
  std::optional<std::chrono::nanoseconds> cpu_began_;
  Stop stop_ = Stop::none;
  void* argument_ = nullptr;
  std::unique_ptr<lua_State, Close> state_;  ///< last: closing it still counts memory
};

/// A C function that may throw. Lua's own errors are no std::exception and pass; others must not
/// meet Lua, which would take them for errors without a text.
template <lua_CFunction Body>
int guarded(lua_State* L) {
  try {
    return Body(L);
  } catch (const std::exception&) {
  }
  return luaL_error(L, "slurmctld has no memory left");
}

}  // namespace bellows
