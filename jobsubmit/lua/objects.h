// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ctime>
#include <span>
#include <string_view>

#include "jobsubmit/lua/hook.h"
#include "jobsubmit/lua/lua_api.h"

namespace bellows {

/// The objects that scripts see: each shows the fields of one LuaFields.
enum class LuaObject { job, change, tenant, now };
constexpr std::size_t kLuaObjects = 4;

std::span<const LuaField> tenant_fields();
std::span<const LuaField> now_fields();

class TenantFields final : public LuaFields {
 public:
  explicit TenantFields(const Tenant& tenant) : tenant_(tenant) {}
  std::optional<LuaValue> get(std::size_t index) const override;
  Status set(std::size_t index, std::optional<LuaValue> value) override;

 private:
  const Tenant& tenant_;
};

class NowFields final : public LuaFields {
 public:
  explicit NowFields(const std::tm& now) : now_(now) {}
  std::optional<LuaValue> get(std::size_t index) const override;
  Status set(std::size_t index, std::optional<LuaValue> value) override;

 private:
  const std::tm& now_;
};

/// "job", "text": as scripts and people call them.
const char* word_for(LuaObject object);
const char* word_for(LuaKind kind);

/// Pushes a new object. It holds no field itself but asks `shown()` of the call that is under way,
/// so one object serves all calls and none can outlive its job. `fields` outlives the state.
void push_lua_object(lua_State* L, LuaObject object, std::span<const LuaField> fields);

/// Who answers for an object in the call that is under way in `L`; null: nobody.
LuaFields* shown(lua_State* L, LuaObject object);

/// Ends the call that is under way: the job is refused. Raises.
int refuse_lua_call(lua_State* L, std::string_view message);

}  // namespace bellows
