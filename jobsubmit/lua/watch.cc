// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/lua/watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace bellows {
namespace {

constexpr LuaKind kind_of(LuaComparison::Literal literal) {
  switch (literal) {
    case LuaComparison::Literal::text:
      return LuaKind::text;
    case LuaComparison::Literal::number:
      return LuaKind::number;
    case LuaComparison::Literal::flag:
      break;
  }
  return LuaKind::flag;
}

/// Pushes the local variable of this name that is in force. False: there is none.
bool push_local(lua_State* L, lua_Debug* where, const std::string& name) {
  int last = 0;
  for (int i = 1; const char* known = lua_getlocal(L, where, i); ++i) {
    lua_pop(L, 1);
    if (known == name) last = i;
  }
  return last > 0 && lua_getlocal(L, where, last);
}

/// The same of those around its function, and then the global ones.
bool push_outer(lua_State* L, lua_Debug* where, const std::string& name) {
  lua_getinfo(L, "f", where);
  const int function = lua_gettop(L);
  int environment = 0;
  for (int i = 1; const char* known = lua_getupvalue(L, function, i); ++i) {
    if (known == name) {
      lua_replace(L, function);
      return true;
    }
    if (std::string_view(known) == "_ENV") environment = i;
    lua_pop(L, 1);
  }
  if (environment > 0 && lua_getupvalue(L, function, environment) && lua_istable(L, -1)) {
    lua_pushlstring(L, name.data(), name.size());
    lua_rawget(L, -2);
    lua_replace(L, function);
  }
  lua_settop(L, function);
  if (!lua_isfunction(L, function) && !lua_isnil(L, function)) return true;
  lua_pop(L, 1);
  return false;
}

std::optional<LuaObject> object_at_top(lua_State* L, const LuaObjects& objects) {
  for (std::size_t i = 0; i < kLuaObjects; ++i) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, objects.first_slot + static_cast<lua_Integer>(i));
    const bool same = lua_rawequal(L, -1, -2) != 0;
    lua_pop(L, 1);
    if (same) return static_cast<LuaObject>(i);
  }
  return std::nullopt;
}

std::string field_slip(LuaObject object, const LuaComparison& one,
                       std::span<const LuaField> fields) {
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const LuaField& known) { return known.name == one.field; });
  const LuaKind with = kind_of(one.with);
  if (field == fields.end() || field->kind == with) return "";
  return fmt::format("{}.{} is a {} and never equals a {}{}", word_for(object), one.field,
                     word_for(field->kind), word_for(with),
                     field->kind == LuaKind::list ? "; look at each of its texts" : "");
}

std::string object_slip(LuaObject object, const LuaComparison& one) {
  const char* meant = object == LuaObject::tenant ? "did you mean tenant.name?"
                      : object == LuaObject::now  ? "did you mean now.hour?"
                                                  : "name one of its fields";
  return fmt::format("{} is not a {} and never equals one; {}", one.name,
                     word_for(kind_of(one.with)), meant);
}

}  // namespace

std::string slip_in(lua_State* L, lua_Debug* where, const LuaComparison& one,
                    const LuaObjects& objects) {
  const int top = lua_gettop(L);
  std::string slip;
  const bool found = push_local(L, where, one.name) || push_outer(L, where, one.name);
  if (!found && one.name == "now")
    lua_rawgeti(L, LUA_REGISTRYINDEX,
                objects.first_slot + static_cast<lua_Integer>(LuaObject::now));
  if (lua_gettop(L) > top) {
    const auto object = object_at_top(L, objects);
    if (object && one.field.empty())
      slip = object_slip(*object, one);
    else if (object)
      slip = field_slip(*object, one, objects.fields[static_cast<std::size_t>(*object)]);
    else if (one.field.empty() && lua_istable(L, -1))
      slip = fmt::format("{} is a table and never equals a {}; look at each of its items", one.name,
                         word_for(kind_of(one.with)));
  }
  lua_settop(L, top);
  return slip;
}

}  // namespace bellows
