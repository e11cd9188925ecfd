// SPDX-License-Identifier: Apache-2.0
#pragma once

// Not <lua.hpp>, which gives every function C's name: in a Lua that is built as C++ it has C's only
// where Lua's own headers say so, as in Debian 12, and not from Debian 13 on.
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
