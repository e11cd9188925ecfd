// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jobsubmit/lua/lua_api.h"

namespace bellows {

/// Where a state keeps what scripts see: integer keys of its registry, above Lua's own.
enum LuaSlot : lua_Integer { kLuaBuiltins = 16, kLuaEnvironment, kLuaFreeSlot };

/// Fills a new state that a LuaSandbox owns: the functions that scripts may call, in the table
/// kLuaBuiltins, and the metatable of a script's own globals, which looks there, as
/// kLuaEnvironment. Scripts can change neither. May raise.
void open_lua_library(lua_State* L);

}  // namespace bellows
