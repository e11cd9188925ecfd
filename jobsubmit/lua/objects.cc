// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/lua/objects.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "common/text.h"
#include "jobsubmit/lua/sandbox.h"

namespace bellows {
namespace {

constexpr const char* kObjectNames[kLuaObjects] = {"job", "change", "tenant", "now"};
constexpr const char* kKindNames[] = {"text", "whole number", "boolean", "list of texts"};
/// Comparing a wrong name with all the right ones takes about as long as so many instructions.
constexpr std::uint64_t kNearestWork = 1000;
/// Bytes of a field that users have set; leaves a script room below LuaSandbox::kMostText.
constexpr std::size_t kMostField = 4096;

/// A field with the function that reads it: the table of fields and of functions in one.
template <typename Source>
struct Getter {
  const char* name;
  LuaKind kind;
  LuaValue (*get)(const Source& source);
};

template <typename Source, std::size_t N>
std::vector<LuaField> fields_of(const Getter<Source> (&getters)[N]) {
  std::vector<LuaField> fields;
  for (const auto& getter : getters) fields.push_back({getter.name, getter.kind, false});
  return fields;
}

constexpr Getter<Tenant> kTenant[] = {
    {"name", LuaKind::text, [](const Tenant& t) -> LuaValue { return t.name; }},
    {"accounts", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.accounts; }},
    {"users", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.users; }},
    {"groups", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.groups; }},
    {"partitions", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.partitions; }},
    {"frameworks", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.frameworks; }},
    {"gpus_min", LuaKind::number,
     [](const Tenant& t) -> LuaValue { return std::int64_t{t.gpus.sizes.min()}; }},
    {"gpus_max", LuaKind::number,
     [](const Tenant& t) -> LuaValue { return std::int64_t{t.gpus.sizes.max()}; }},
    {"gpus_start", LuaKind::number,
     [](const Tenant& t) -> LuaValue { return std::int64_t{t.gpus.start}; }},
    {"gpu_types", LuaKind::list, [](const Tenant& t) -> LuaValue { return t.gpus.types; }},
    {"gpus_per_node", LuaKind::number,
     [](const Tenant& t) -> LuaValue { return std::int64_t{t.gpus.gpus_per_node}; }},
    {"max_nodes", LuaKind::number,
     [](const Tenant& t) -> LuaValue { return std::int64_t{t.gpus.max_nodes}; }},
};

/// Counted as Lua's os.date counts: January and Sunday are 1.
constexpr Getter<std::tm> kNow[] = {
    {"year", LuaKind::number,
     [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_year} + 1900; }},
    {"month", LuaKind::number,
     [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_mon} + 1; }},
    {"day", LuaKind::number, [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_mday}; }},
    {"hour", LuaKind::number, [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_hour}; }},
    {"minute", LuaKind::number,
     [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_min}; }},
    {"wday", LuaKind::number,
     [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_wday} + 1; }},
    {"yday", LuaKind::number,
     [](const std::tm& t) -> LuaValue { return std::int64_t{t.tm_yday} + 1; }},
};

Status never_set() { return Error{ErrorKind::internal, "this can't be written to"}; }

std::size_t object_of(lua_State* L) {
  return static_cast<std::size_t>(lua_tointeger(L, lua_upvalueindex(1)));
}

const LuaField* field_table(lua_State* L) {
  return static_cast<const LuaField*>(lua_touserdata(L, lua_upvalueindex(2)));
}

/// Raises an error with the text, after its std::string is gone.
int fail(lua_State* L, const std::string& text) {
  luaL_where(L, 1);
  lua_pushlstring(L, text.data(), text.size());
  lua_concat(L, 2);
  return lua_error(L);
}

int unknown_field(lua_State* L) {
  LuaSandbox::of(L).charge(L, kNearestWork);
  if (lua_type(L, 2) != LUA_TSTRING)
    return luaL_error(L, "the fields of %s have names", kObjectNames[object_of(L)]);
  std::vector<std::string> known;
  const auto count = static_cast<std::size_t>(lua_tointeger(L, lua_upvalueindex(4)));
  for (std::size_t i = 0; i < count; ++i) known.push_back(field_table(L)[i].name);
  std::size_t size = 0;
  const char* name = lua_tolstring(L, 2, &size);
  const std::string match = nearest({name, size}, known);
  return fail(
      L, fmt::format("{} has no field {}{}", kObjectNames[object_of(L)], one_line({name, size}, 64),
                     match.empty() ? "" : "; did you mean " + match + "?"));
}

/// The index of the field that argument 2 names; raises for an unknown one.
std::size_t field_index(lua_State* L) {
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(3));
  if (lua_isnil(L, -1)) unknown_field(L);
  const auto index = static_cast<std::size_t>(lua_tointeger(L, -1));
  lua_pop(L, 1);
  return index;
}

LuaFields& answering(lua_State* L) {
  LuaFields* fields = shown(L, static_cast<LuaObject>(object_of(L)));
  if (!fields) luaL_error(L, "%s is not known here", kObjectNames[object_of(L)]);
  return *fields;
}

struct Push {
  lua_State* L;
  void operator()(const std::string& text) const { lua_pushlstring(L, text.data(), text.size()); }
  void operator()(std::int64_t number) const { lua_pushinteger(L, number); }
  void operator()(bool flag) const { lua_pushboolean(L, flag); }
  void operator()(const LuaList& list) const {
    lua_createtable(L, static_cast<int>(list.size()), 0);
    lua_Integer n = 0;
    for (const std::string& item : list) {
      (*this)(item);
      lua_rawseti(L, -2, ++n);
    }
    LuaSandbox::of(L).charge(L, list.size());
  }
};

/// How much memory a value takes in Lua, to compare with kMostField.
struct Size {
  std::size_t operator()(const std::string& text) const { return text.size(); }
  std::size_t operator()(std::int64_t) const { return 0; }
  std::size_t operator()(bool) const { return 0; }
  std::size_t operator()(const LuaList& list) const {
    std::size_t size = 0;
    for (const std::string& item : list) size += item.size() + 8;
    return size;
  }
};

int read_field(lua_State* L) {
  const std::size_t index = field_index(L);
  const auto value = answering(L).get(index);
  // This is not a failure of the script: if failures let jobs pass, users could cause one at will.
  if (value && std::visit(Size{}, *value) > kMostField)
    return refuse_lua_call(L, fmt::format("the job's {} has more than {} bytes; shorten it",
                                          field_table(L)[index].name, kMostField));
  if (value)
    std::visit(Push{L}, *value);
  else
    lua_pushnil(L);
  return 1;
}

/// The value on the top as a field's kind; nothing when it is of another.
std::optional<LuaValue> value_of(lua_State* L, LuaKind kind) {
  const int type = lua_type(L, -1);
  std::size_t size = 0;
  int whole = 0;
  if (kind == LuaKind::text && type == LUA_TSTRING) {
    const char* text = lua_tolstring(L, -1, &size);
    return std::string(text, size);
  }
  if (kind == LuaKind::number && type == LUA_TNUMBER) {
    const lua_Integer number = lua_tointegerx(L, -1, &whole);
    if (whole) return std::int64_t{number};
  }
  if (kind == LuaKind::flag && type == LUA_TBOOLEAN) return lua_toboolean(L, -1) != 0;
  return std::nullopt;
}

std::optional<LuaValue> list_of(lua_State* L) {
  const lua_Unsigned size = lua_type(L, 3) == LUA_TTABLE ? lua_rawlen(L, 3) : SIZE_MAX;
  if (size > LuaSandbox::kMostItems) return std::nullopt;
  LuaSandbox::of(L).charge(L, size);
  LuaList list;
  for (lua_Unsigned i = 1; i <= size; ++i) {
    lua_rawgeti(L, 3, static_cast<lua_Integer>(i));
    auto item = value_of(L, LuaKind::text);
    lua_pop(L, 1);
    if (!item) return std::nullopt;
    list.push_back(std::get<std::string>(*std::move(item)));
  }
  return list;
}

int write_field(lua_State* L) {
  const std::size_t index = field_index(L);
  const LuaField& field = field_table(L)[index];
  const char* object = kObjectNames[object_of(L)];
  if (!field.writable) return luaL_error(L, "%s.%s can't be changed", object, field.name);
  std::optional<LuaValue> value;
  if (!lua_isnil(L, 3)) {
    value = field.kind == LuaKind::list ? list_of(L) : value_of(L, field.kind);
    if (!value)
      return luaL_error(L, "%s.%s takes a %s, not this %s", object, field.name,
                        kKindNames[static_cast<std::size_t>(field.kind)], luaL_typename(L, 3));
  }
  const Status status = answering(L).set(index, std::move(value));
  if (!status.ok())
    return fail(L, fmt::format("{}.{}: {}", object, field.name, status.error().text));
  return 0;
}

/// Sets `event` in the metatable below to `function`, and the table of names is at `names`.
void add_access(lua_State* L, const char* event, lua_CFunction function, LuaObject object,
                std::span<const LuaField> fields, int names) {
  lua_pushinteger(L, static_cast<lua_Integer>(object));
  lua_pushlightuserdata(L, const_cast<LuaField*>(fields.data()));
  lua_pushvalue(L, names);
  lua_pushinteger(L, static_cast<lua_Integer>(fields.size()));
  lua_pushcclosure(L, function, 4);
  lua_setfield(L, -2, event);
}

}  // namespace

const char* word_for(LuaObject object) { return kObjectNames[static_cast<std::size_t>(object)]; }
const char* word_for(LuaKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::span<const LuaField> tenant_fields() {
  static const std::vector<LuaField> fields = fields_of(kTenant);
  return fields;
}

std::span<const LuaField> now_fields() {
  static const std::vector<LuaField> fields = fields_of(kNow);
  return fields;
}

std::optional<LuaValue> TenantFields::get(std::size_t index) const {
  return kTenant[index].get(tenant_);
}
Status TenantFields::set(std::size_t, std::optional<LuaValue>) { return never_set(); }

std::optional<LuaValue> NowFields::get(std::size_t index) const { return kNow[index].get(now_); }
Status NowFields::set(std::size_t, std::optional<LuaValue>) { return never_set(); }

void push_lua_object(lua_State* L, LuaObject object, std::span<const LuaField> fields) {
  lua_createtable(L, 0, static_cast<int>(fields.size()));
  const int names = lua_gettop(L);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    lua_pushinteger(L, static_cast<lua_Integer>(i));
    lua_setfield(L, names, fields[i].name);
  }
  lua_newuserdatauv(L, 0, 0);
  lua_createtable(L, 0, 2);
  add_access(L, "__index", guarded<read_field>, object, fields, names);
  add_access(L, "__newindex", guarded<write_field>, object, fields, names);
  lua_setmetatable(L, -2);
  lua_remove(L, names);
}

}  // namespace bellows
