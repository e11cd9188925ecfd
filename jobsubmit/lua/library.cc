// SPDX-License-Identifier: Apache-2.0
/// What scripts may call. No instruction is counted inside a C function, so each one here must be
/// short by itself: it looks at a bounded number of texts of at most kMostText bytes, or at a list
/// of at most kMostItems, and is charged for the list. Absent: whatever loads or dumps code,
/// reaches files, the clock, the collector or the debug library; patterns, which can take
/// exponential time; metatables, whose functions run where none is expected, also after the call
/// (__gc, __close); coroutines, which have hooks and stacks of their own.
#include "jobsubmit/lua/library.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "jobsubmit/lua/sandbox.h"

namespace bellows {
namespace {

/// Taken from Lua's own as they are.
struct Taken {
  const char* library;  ///< null: of the base library
  const char* name;
};
constexpr Taken kTaken[] = {
    {nullptr, "assert"},    {nullptr, "error"},  {nullptr, "ipairs"},    {nullptr, "select"},
    {nullptr, "tonumber"},  {nullptr, "type"},   {"math", "abs"},        {"math", "ceil"},
    {"math", "floor"},      {"math", "fmod"},    {"math", "huge"},       {"math", "max"},
    {"math", "maxinteger"}, {"math", "min"},     {"math", "mininteger"}, {"math", "sqrt"},
    {"math", "tointeger"},  {"math", "type"},    {"string", "byte"},     {"string", "char"},
    {"string", "len"},      {"string", "lower"}, {"string", "reverse"},  {"string", "sub"},
    {"string", "upper"},
};

/// Work on `bytes` bytes, in instructions.
constexpr std::uint64_t work(std::size_t bytes) { return 1 + bytes / 32; }

std::string_view text_argument(lua_State* L, int index) {
  std::size_t size = 0;
  const char* text = luaL_checklstring(L, index, &size);
  return {text, size};
}

/// Charged, since that looks at the clock: it skips empty slots, of which a large table may have
/// many.
int next(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  LuaSandbox::of(L).charge(L, 1);
  lua_settop(L, 2);
  if (lua_next(L, 1)) return 2;
  lua_pushnil(L);
  return 1;
}

int pairs(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_pushcfunction(L, next);
  lua_insert(L, 1);
  return 2;
}

int limited_pcall(lua_State* L) {
  luaL_checkany(L, 1);
  const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  LuaSandbox& box = LuaSandbox::of(L);
  box.raise_if_stopped(L);
  box.charge(L, status == LUA_OK ? 1 : 64);  // throwing is slow
  lua_pushboolean(L, status == LUA_OK);
  lua_insert(L, 1);
  return lua_gettop(L);
}

/// Without the address that Lua prints of a table or function: users may see the text.
int plain_tostring(lua_State* L) {
  luaL_checkany(L, 1);
  switch (lua_type(L, 1)) {
    case LUA_TNIL:
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING:
      luaL_tolstring(L, 1, nullptr);
      break;
    default:
      lua_pushstring(L, luaL_typename(L, 1));
  }
  return 1;
}

/// Lua's own format, whose widths have two digits at most, but for %p, which prints an address,
/// and %q; and given only what prints without one.
int plain_format(lua_State* L) {
  const std::string_view format = text_argument(L, 1);
  LuaSandbox::of(L).charge(L, format.size());
  for (std::size_t at = format.find('%'); at != format.npos; at = format.find('%', at + 1)) {
    at = format.find_first_not_of("-+ #0123456789.", at + 1);
    if (at == format.npos) break;
    if (format[at] == 'p' || format[at] == 'q')
      return luaL_error(L, "format has no %%%c here", format[at]);
  }
  for (int i = 2; i <= lua_gettop(L); ++i)
    if (lua_type(L, i) > LUA_TSTRING || lua_type(L, i) == LUA_TLIGHTUSERDATA)
      return luaL_argerror(L, i, "a text, number or boolean is needed");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

/// find(text, part [, from]): where `part` stands, first and last byte; no patterns.
int plain_find(lua_State* L) {
  const std::string_view text = text_argument(L, 1);
  const std::string_view part = text_argument(L, 2);
  const lua_Integer from = luaL_optinteger(L, 3, 1);
  if (!lua_isnone(L, 4)) return luaL_error(L, "find takes no patterns, and three arguments");
  LuaSandbox::of(L).charge(L, work(text.size()));
  const auto size = static_cast<lua_Integer>(text.size());
  if (from < 1 || from > size + 1) return 0;
  const std::string_view rest = text.substr(static_cast<std::size_t>(from - 1));
  // Not std::string_view::find, which takes the product of the sizes.
  const void* at = memmem(rest.data(), rest.size(), part.data(), part.size());
  if (!at) return 0;
  const auto first = static_cast<lua_Integer>(static_cast<const char*>(at) - text.data()) + 1;
  lua_pushinteger(L, first);
  lua_pushinteger(L, first + static_cast<lua_Integer>(part.size()) - 1);
  return 2;
}

int starts(lua_State* L) {
  lua_pushboolean(L, text_argument(L, 1).starts_with(text_argument(L, 2)));
  return 1;
}

int ends(lua_State* L) {
  lua_pushboolean(L, text_argument(L, 1).ends_with(text_argument(L, 2)));
  return 1;
}

int trim(lua_State* L) {
  constexpr const char* kBlanks = " \t\r\n\v\f";
  std::string_view text = text_argument(L, 1);
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

/// split(text, separator): the list of the pieces; an empty text gives one empty piece.
int split_text(lua_State* L) {
  std::string_view text = text_argument(L, 1);
  const std::string_view separator = text_argument(L, 2);
  luaL_argcheck(L, !separator.empty(), 2, "an empty separator splits nothing");
  LuaSandbox::of(L).charge(L, work(text.size()));
  lua_newtable(L);
  for (lua_Integer n = 1;; ++n) {
    if (n > static_cast<lua_Integer>(LuaSandbox::kMostItems))
      return luaL_error(L, "split gives at most %d pieces", static_cast<int>(n - 1));
    const void* at = memmem(text.data(), text.size(), separator.data(), separator.size());
    const std::size_t size =
        at ? static_cast<std::size_t>(static_cast<const char*>(at) - text.data()) : text.size();
    lua_pushlstring(L, text.data(), size);
    lua_rawseti(L, -2, n);
    LuaSandbox::of(L).charge(L, 1);
    if (!at) return 1;
    text.remove_prefix(size + separator.size());
  }
}

int rep(lua_State* L) {
  const std::string_view text = text_argument(L, 1);
  const lua_Integer times = luaL_checkinteger(L, 2);
  if (!lua_isnone(L, 3)) return luaL_error(L, "rep takes two arguments");
  if (times <= 0 || text.empty()) {
    lua_pushliteral(L, "");
    return 1;
  }
  if (static_cast<lua_Unsigned>(times) > LuaSandbox::kMostText / text.size())
    return luaL_error(L, "a text may have at most %d bytes",
                      static_cast<int>(LuaSandbox::kMostText));
  LuaSandbox::of(L).charge(L, work(text.size() * static_cast<std::size_t>(times)) +
                                  static_cast<std::uint64_t>(times) / 8);
  luaL_Buffer out;
  luaL_buffinit(L, &out);
  for (lua_Integer i = 0; i < times; ++i) luaL_addlstring(&out, text.data(), text.size());
  luaL_pushresult(&out);
  return 1;
}

/// Lua's own function of upvalue 1, on a short list and with no more than upvalue 2 arguments: the
/// further ones would be positions, and `#` can be as far off as 2^62 in a list with holes.
int on_short_list(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Unsigned size = lua_rawlen(L, 1);
  if (size > LuaSandbox::kMostItems)
    return luaL_error(L, "a list may have at most %d items here",
                      static_cast<int>(LuaSandbox::kMostItems));
  const auto most = static_cast<int>(lua_tointeger(L, lua_upvalueindex(2)));
  if (lua_gettop(L) > most) return luaL_error(L, "at most %d arguments are taken here", most);
  LuaSandbox::of(L).charge(L, 1 + size);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/// What sort uses when it is given nothing: `<`, but charged.
int less(lua_State* L) {
  std::size_t size = 0;
  if (lua_type(L, 1) == LUA_TSTRING) lua_tolstring(L, 1, &size);
  LuaSandbox::of(L).charge(L, 2 + work(size));
  lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
  return 1;
}

int sort(lua_State* L) {
  if (lua_gettop(L) == 1) lua_pushcfunction(L, less);
  return on_short_list(L);
}

int read_only(lua_State* L) { return luaL_error(L, "Lua's own functions can't be replaced"); }

constexpr luaL_Reg kOwnBase[] = {
    {"next", next}, {"pairs", pairs}, {"pcall", limited_pcall}, {"tostring", plain_tostring}};
constexpr luaL_Reg kOwnText[] = {{"find", plain_find}, {"starts", starts}, {"ends", ends},
                                 {"trim", trim},       {"rep", rep},       {"split", split_text}};

struct ListFunction {
  const char* name;
  lua_CFunction function;
  int most_arguments;
};
constexpr ListFunction kLists[] = {{"concat", on_short_list, 2},
                                   {"insert", on_short_list, 3},
                                   {"remove", on_short_list, 2},
                                   {"sort", sort, 2},
                                   {"unpack", on_short_list, 1}};

/// Replaces the table on the top by an object that shows it and can't be written to. No table, as
/// that could be written to in ways that ask no metatable.
void seal(lua_State* L) {
  lua_newuserdatauv(L, 0, 0);
  lua_createtable(L, 0, 2);
  lua_rotate(L, -3, -1);  // object, metatable, contents
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, read_only);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
}

/// Pushes a table with what kTaken lists of `library`, whose own table is at `source`.
void take(lua_State* L, int source, const char* library) {
  lua_newtable(L);
  for (const Taken& taken : kTaken) {
    if ((library == nullptr) != (taken.library == nullptr)) continue;
    if (library && std::strcmp(library, taken.library) != 0) continue;
    lua_getfield(L, source, taken.name);
    lua_setfield(L, -2, taken.name);
  }
}

void open(lua_State* L, lua_CFunction library) {
  lua_pushcfunction(L, library);
  lua_call(L, 0, 1);
}

/// Pushes the functions on texts; also makes them the methods of every text.
void push_text_library(lua_State* L) {
  open(L, luaopen_string);
  const int source = lua_gettop(L);
  take(L, source, "string");
  for (const luaL_Reg& own : kOwnText) {
    lua_pushcfunction(L, own.func);
    lua_setfield(L, -2, own.name);
  }
  lua_getfield(L, source, "format");
  lua_pushcclosure(L, plain_format, 1);
  lua_setfield(L, -2, "format");
  // In place of the one that luaopen_string made, which also does arithmetic on texts.
  lua_pushliteral(L, "");
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
  lua_remove(L, source);
}

void push_list_library(lua_State* L) {
  open(L, luaopen_table);
  lua_newtable(L);
  for (const ListFunction& own : kLists) {
    lua_getfield(L, -2, own.name);
    lua_pushinteger(L, own.most_arguments);
    lua_pushcclosure(L, own.function, 2);
    lua_setfield(L, -2, own.name);
  }
  lua_remove(L, -2);
}

}  // namespace

void open_lua_library(lua_State* L) {
  open(L, luaopen_base);
  const int globals = lua_gettop(L);
  take(L, globals, nullptr);
  for (const luaL_Reg& own : kOwnBase) {
    lua_pushcfunction(L, own.func);
    lua_setfield(L, -2, own.name);
  }
  open(L, luaopen_math);
  take(L, lua_gettop(L), "math");
  seal(L);
  lua_setfield(L, globals + 1, "math");
  lua_settop(L, globals + 1);
  push_text_library(L);
  seal(L);
  lua_setfield(L, globals + 1, "string");
  push_list_library(L);
  seal(L);
  lua_setfield(L, globals + 1, "table");
  // No script may find the rest of Lua: its global table is emptied by putting another in place.
  lua_newtable(L);
  lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, globals + 1);
  lua_setfield(L, -2, "__index");
  lua_rawseti(L, LUA_REGISTRYINDEX, kLuaEnvironment);
  lua_rawseti(L, LUA_REGISTRYINDEX, kLuaBuiltins);
}

}  // namespace bellows
