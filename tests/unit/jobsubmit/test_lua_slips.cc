// SPDX-License-Identifier: Apache-2.0
/// Comparisons that are false for ever: no error for Lua, and found when a hook is watched.

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "jobsubmit/lua/hook.h"
#include "tests/unit/jobsubmit/lua_support.h"

using namespace bellows;

namespace {

/// What a watched submit hook with this body is told of, with one tenant.
std::string slips(const std::string& body, const std::string& before = "") {
  LuaHook hook = good_hook(before + "function submit(job, tenant)\n" + body + "\nend");
  hook.watch();
  JobFields job;
  job["features"] = LuaList{"a"};
  Tenant tenant;
  tenant.name = "vision";
  const HookOutcome outcome = hook.submit(job, &tenant, at_hour(10));
  cr_expect(not outcome.failure, "%s: %s", body.c_str(),
            outcome.failure ? outcome.failure->c_str() : "");
  return fmt::format("{}", fmt::join(outcome.slips, "|"));
}

struct Case {
  const char* body;
  const char* told;
};

}  // namespace

Test(lua_slips, comparisons_that_are_never_true, .timeout = 20) {
  const Case cases[] = {
      {"if tenant == 'vision' then end",
       "s.lua:2: tenant is not a text and never equals one; did you mean tenant.name?"},
      {"return tenant ~= [[vision]] and nil",
       "s.lua:2: tenant is not a text and never equals one; did you mean tenant.name?"},
      {"local me = tenant\nif 'vision' == me then end",
       "s.lua:3: me is not a text and never equals one; did you mean tenant.name?"},
      {"if job == 3 then end",
       "s.lua:2: job is not a whole number and never equals one; name one of its fields"},
      {"if now == 8 then end",
       "s.lua:2: now is not a whole number and never equals one; did you mean now.hour?"},
      {"if job.gpus == '4' then end",
       "s.lua:2: job.gpus is a whole number and never equals a text"},
      {"if job.batch == 1 then end",
       "s.lua:2: job.batch is a boolean and never equals a whole number"},
      {"if job.partition and\n  job.features ~= 'a' or job.features == 'a' then end",
       "s.lua:3: job.features is a list of texts and never equals a text; look at each of its "
       "texts"},
      {"local f = job.features if f == 'a' then end", ""},  // of one line, before it is set
      {"local f = job.features\nif f == 'a' then end",
       "s.lua:3: f is a table and never equals a text; look at each of its items"},
      {"for i = 1, 3 do if tenant.name == 3 then end end",
       "s.lua:2: tenant.name is a text and never equals a whole number"},
      {"tenant = tenant.name\nif tenant == 'vision' then end", ""},
      {"local function by(tenant) return tenant == 'vision' end\nif by(tenant.name) then end", ""},
      {"local function by()\nreturn tenant == 'vision' end\nif by() then end",
       "s.lua:3: tenant is not a text and never equals one; did you mean tenant.name?"},
      {"if tenant.name == 'vision' and job.gpus ~= 4 and job.batch == true then end", ""},
      {"-- tenant == 'vision'\nlocal s = \"tenant == 'vision'\" --[==[ tenant == 'x' ]==]", ""},
      {"if #job.features == 1 and 'a' .. tenant.name == 'avision' then end", ""},
      {"if false then\nif tenant == 'vision' then end end", ""},
  };
  for (const Case& one : cases)
    cr_expect(slips(one.body) == one.told, "%s: %s", one.body, slips(one.body).c_str());
}

Test(lua_slips, also_in_other_functions, .timeout = 20) {
  const std::string before = "local function is(t)\n  return t == 'vision'\nend\n";
  cr_expect(slips("if is(tenant) then end", before) ==
            "s.lua:2: t is not a text and never equals one; did you mean tenant.name?");
  cr_expect(slips("if is(tenant.name) then end", before).empty());
}

Test(lua_slips, are_not_looked_for_otherwise, .timeout = 20) {
  cr_expect(submit_body("if job == 'a' then end").slips.empty());
}

Test(lua_slips, any_text_may_be_read, .timeout = 20) {
  for (const char* source : {"", "--[[", "[==[", "'", "\"\\", "a ==", "== 'a'", "a.", ". == 1",
                             "1.2.3 == a", "a == 'b", "--", "[[]]==a", "\xff == 1", "a.b.c == 1"})
    for (const LuaComparison& one : comparisons_in(source)) cr_expect(not one.name.empty());
}
