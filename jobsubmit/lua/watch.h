// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>

#include "jobsubmit/lua/lua_api.h"
#include "jobsubmit/lua/objects.h"
#include "jobsubmit/lua/slips.h"

namespace bellows {

/// The objects of a state: where each stands in the registry, and its fields.
struct LuaObjects {
  lua_Integer first_slot;
  std::array<std::span<const LuaField>, kLuaObjects> fields;
};

/// Why a comparison on the line that is about to run can only be false, by what its variable holds
/// now; or "". Raises nothing.
std::string slip_in(lua_State* L, lua_Debug* where, const LuaComparison& comparison,
                    const LuaObjects& objects);

}  // namespace bellows
