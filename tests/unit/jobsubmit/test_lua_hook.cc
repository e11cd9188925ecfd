// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "jobsubmit/lua/hook.h"
#include "tests/unit/jobsubmit/lua_support.h"

using namespace bellows;

namespace {

void expect_failure(const std::string& body, const char* part) {
  const HookOutcome outcome = submit_body(body);
  cr_expect(has(outcome.failure, part), "%s: %s", body.c_str(),
            outcome.failure ? outcome.failure->c_str() : "no failure");
  cr_expect(not outcome.refused);
}

void expect_load_error(const std::string& source, const char* message) {
  const auto hook = LuaHook::load(lua_settings(source), kJobFields);
  cr_assert(not hook.ok(), "accepted: %s", source.c_str());
  cr_expect_str_eq(hook.error().text.c_str(), message);
}

LuaHook example(const std::string& name) {
  std::ifstream file(TOP_SRCDIR "/lua/" + name);
  std::string source(std::istreambuf_iterator<char>(file), {});
  cr_assert(not source.empty(), "no %s", name.c_str());
  return good_hook(std::move(source));
}

}  // namespace

Test(lua_hook, admits_what_it_does_not_refuse, .timeout = 10) {
  const HookOutcome outcome = submit_body("");
  cr_expect(not outcome.refused);
  cr_expect(not outcome.failure, "%s", outcome.failure ? outcome.failure->c_str() : "");
  cr_expect(outcome.message.empty());
  cr_expect(outcome.log.empty());
}

Test(lua_hook, refuses_by_a_text_or_by_refuse, .timeout = 10) {
  for (const char* body : {"return 'no: ' .. 3", "refuse('no: 3')", "pcall(refuse, 'no: 3')",
                           "local function f() refuse('no: 3') end pcall(f) return 'other'"}) {
    const HookOutcome outcome = submit_body(body);
    cr_expect(outcome.refused, "%s", body);
    expect_says(outcome, "no: 3");
    cr_expect(not outcome.failure);
  }
  const HookOutcome silent = submit_body("return ''");
  cr_expect(silent.refused);
  cr_expect(not silent.message.empty());
}

Test(lua_hook, bounds_what_it_says, .timeout = 10) {
  const HookOutcome loud = submit_body(
      "for i = 1, 100 do log('line ' .. i .. '\\n\\27[31m' .. ('x'):rep(1000)) end\n"
      "return 'a\\nb\\0c' .. ('y'):rep(5000)");
  cr_assert(loud.log.size() == 17);
  cr_expect(loud.log[0].starts_with("line 1??[31mxxx"));
  cr_expect(loud.log[0].size() == 256);
  cr_expect_str_eq(loud.log[16].c_str(), "(and more)");
  cr_expect(loud.message.starts_with("a?b?cyyy"));
  cr_expect(loud.message.size() == 512);
}

Test(lua_hook, keeps_the_log_of_a_hook_that_fails, .timeout = 10) {
  const HookOutcome outcome = submit_body("log('before') error('broken')");
  cr_expect(has(outcome.failure, "s.lua:2: broken"));
  cr_expect(has(outcome.failure, "stack traceback"));
  cr_assert(outcome.log.size() == 1);
  cr_expect_str_eq(outcome.log[0].c_str(), "before");
}

Test(lua_hook, reads_fields_of_each_kind, .timeout = 10) {
  LuaHook hook = good_hook(
      "function submit(job)\n"
      "  assert(job.account == nil)\n"
      "  assert(job.user_name == 'al\\0ice' and job.gpus == 4 and math.type(job.gpus) == "
      "'integer')\n"
      "  assert(job.batch == true and job.requeue == false)\n"
      "  assert(#job.features == 2 and job.features[1] == 'a' and job.features[2] == 'b')\n"
      "end");
  JobFields job;
  job["user_name"] = std::string("al\0ice", 6);
  job["gpus"] = std::int64_t{4};
  job["batch"] = true;
  job["requeue"] = false;
  job["features"] = LuaList{"a", "b"};
  const HookOutcome outcome = hook.submit(job, nullptr, at_hour(10));
  cr_expect(not outcome.failure, "%s", outcome.failure ? outcome.failure->c_str() : "");
}

Test(lua_hook, writes_fields_of_each_kind, .timeout = 10) {
  LuaHook hook = good_hook(
      "function submit(job)\n"
      "  job.partition = 'gpu'; job.gpus = 8.0; job.requeue = true; job.features = {'x', 'y'}\n"
      "  job.time_limit = nil\n"
      "end");
  JobFields job;
  job["time_limit"] = std::int64_t{60};
  const HookOutcome outcome = hook.submit(job, nullptr, at_hour(10));
  cr_expect(not outcome.failure, "%s", outcome.failure ? outcome.failure->c_str() : "");
  cr_expect(job.text("partition") == "gpu");
  cr_expect(job["gpus"] == LuaValue(std::int64_t{8}));
  cr_expect(job["requeue"] == LuaValue(true));
  cr_expect(job["features"] == LuaValue(LuaList{"x", "y"}));
  cr_expect(not job["time_limit"]);
}

Test(lua_hook, names_what_is_wrong_with_a_field, .timeout = 10) {
  expect_failure("return job.partitoin",
                 "s.lua:2: job has no field partitoin; did you mean partition?");
  expect_failure("job.partitoin = 'x'", "did you mean partition?");
  expect_failure("return job.nonsense", "job has no field nonsense\n");
  expect_failure("return job[1]", "the fields of job have names");
  expect_failure("job.user_name = 'root'", "job.user_name can't be changed");
  expect_failure("job.account = nil", "job.account: a job needs an account");
  expect_failure("job.partition = 7", "job.partition takes a text, not this number");
  expect_failure("job.gpus = '7'", "job.gpus takes a whole number, not this string");
  expect_failure("job.gpus = 7.5", "job.gpus takes a whole number, not this number");
  expect_failure("job.requeue = 1", "job.requeue takes a boolean, not this number");
  expect_failure("job.features = 'a'", "job.features takes a list of texts, not this string");
  expect_failure("job.features = {'a', 1}", "job.features takes a list of texts, not this table");
  expect_failure("now.hour = 3", "now.hour can't be changed");
  expect_failure("return now.hours", "now has no field hours; did you mean hour?");
}

Test(lua_hook, refuses_jobs_whose_fields_are_too_long, .timeout = 10) {
  LuaHook hook =
      good_hook("function submit(job) pcall(function() return job.account, job.features end) end");
  JobFields job;
  job["account"] = std::string(4096, 'x');
  const HookOutcome longest = hook.submit(job, nullptr, at_hour(10));
  cr_expect(not longest.refused and not longest.failure);
  job["account"] = std::string(4097, 'x');
  expect_says(hook.submit(job, nullptr, at_hour(10)),
              "the job's account has more than 4096 bytes; shorten it");
  job["account"] = std::nullopt;
  job["features"] = LuaList(1000, "");
  expect_says(hook.submit(job, nullptr, at_hour(10)),
              "the job's features has more than 4096 bytes; shorten it");
}

Test(lua_hook, shows_the_tenant, .timeout = 10) {
  LuaHook hook = good_hook(
      "function submit(job, tenant)\n"
      "  if not tenant then return 'none' end\n"
      "  return tenant.name .. tenant.accounts[1] .. tenant.gpus_max .. tenant.gpus_min .. "
      "#tenant.users\n"
      "end\n"
      "function modify(job, change, tenant) tenant.name = 'other' end");
  Tenant tenant;
  tenant.name = "vision";
  tenant.accounts = {"cv"};
  tenant.gpus.sizes = GpusRange::between(2, 8);
  JobFields job, change;
  expect_says(hook.submit(job, &tenant, at_hour(10)), "visioncv820");
  expect_says(hook.submit(job, nullptr, at_hour(10)), "none");
  const HookOutcome written = hook.modify(job, change, &tenant, at_hour(10));
  cr_expect(has(written.failure, "tenant.name can't be changed"));
}

Test(lua_hook, tells_the_time_as_lua_does, .timeout = 10) {
  const HookOutcome outcome = submit_body(
      "return table.concat({now.year, now.month, now.day, now.hour, now.minute, now.wday, "
      "now.yday}, ' ')");
  expect_says(outcome, "2022 11 7 10 30 2 311");
}

Test(lua_hook, modify_sees_job_and_change, .timeout = 10) {
  LuaHook hook = good_hook(
      "function modify(job, change)\n"
      "  if change.gpus and change.gpus > job.gpus then refuse('not larger than ' .. job.gpus) "
      "end\n"
      "  change.partition = job.partition\n"
      "end");
  cr_expect(hook.has_modify());
  cr_expect(not hook.has_submit());
  JobFields job, change;
  job["gpus"] = std::int64_t{4};
  job["partition"] = "gpu";
  change["gpus"] = std::int64_t{2};
  cr_expect(not hook.modify(job, change, nullptr, at_hour(10)).refused);
  cr_expect(change.text("partition") == "gpu");
  change["gpus"] = std::int64_t{8};
  const HookOutcome larger = hook.modify(job, change, nullptr, at_hour(10));
  expect_says(larger, "not larger than 4");
  cr_expect(not hook.submit(job, nullptr, at_hour(10)).refused, "there is no submit");
}

Test(lua_hook, keeps_nothing_from_call_to_call, .timeout = 10) {
  LuaHook hook = good_hook(
      "local seen = 0\n"
      "local kept = {}\n"
      "function submit(job)\n"
      "  seen = seen + 1\n"
      "  count = (count or 0) + 1\n"
      "  kept[#kept + 1] = job.user_name\n"
      "  stolen, string, log = job, nil, nil\n"
      "  _ENV.more = (more or 0) + 1\n"
      "  return seen .. ' ' .. count .. ' ' .. #kept .. ' ' .. more\n"
      "end\n"
      "function modify()\n"
      "  log(tostring(count) .. tostring(stolen) .. type(string))\n"
      "  _ENV = nil\n"
      "end");
  JobFields job, change;
  job["user_name"] = "alice";
  for (int i = 0; i < 3; ++i) {
    expect_says(hook.submit(job, nullptr, at_hour(10)), "1 1 1 1");
    const HookOutcome outcome = hook.modify(job, change, nullptr, at_hour(10));
    cr_assert(outcome.log.size() == 1);
    cr_expect_str_eq(outcome.log[0].c_str(), "nilniluserdata");
  }
}

Test(lua_hook, says_at_loading_what_is_wrong, .timeout = 10) {
  expect_load_error("function submit(", "s.lua:1: <name> or '...' expected near <eof>");
  expect_load_error("x = 1\ny = nil .. x\n", "s.lua:2: attempt to concatenate a nil value");
  expect_load_error(
      "", "s.lua: it defines neither submit(job, tenant) nor modify(job, change, tenant)");
  expect_load_error("submit = 3", "s.lua: submit is a number and should be a function");
  expect_load_error("refuse('x')", "s.lua: it calls refuse outside submit and modify");
  expect_load_error("while true do end", "s.lua:1: it takes more than 100000 instructions");
  expect_load_error(std::string(300 * 1024, ' '), "s.lua: a script has at most 256 KiB");
}

Test(lua_hook, wants_a_text_or_nothing_as_the_answer, .timeout = 10) {
  for (const char* answer : {"true", "false", "7", "{}", "job"})
    expect_failure(std::string("return ") + answer, "submit must return nothing, or a text");
  expect_failure("error()", "an error that is a nil");
  expect_failure("error({})", "an error that is a table");
}

Test(lua_hook, obeys_its_settings, .timeout = 10) {
  LuaSettings settings = lua_settings("function submit() for i = 1, 500 do end end");
  settings.max_instructions = 200;
  auto hook = LuaHook::load(settings, kJobFields);
  cr_assert(hook.ok());
  JobFields job;
  cr_expect(has(hook->submit(job, nullptr, at_hour(10)).failure, "more than 200 instructions"));
  settings.source = "function submit() local t = {} for i = 1, 1000 do t[i] = i end end";
  settings.max_instructions = 100000;
  settings.max_memory_kib = 8;
  hook = LuaHook::load(settings, kJobFields);
  cr_assert(hook.ok());
  cr_expect(has(hook->submit(job, nullptr, at_hour(10)).failure, "more than 8 KiB of memory"));
}

Test(lua_hook, goes_on_after_a_runaway, .timeout = 10) {
  LuaHook hook = good_hook(
      "function submit(job) if job.gpus == 1 then while true do end end return 'fine' end");
  JobFields wild, tame;
  wild["gpus"] = std::int64_t{1};
  for (int i = 0; i < 20; ++i) {
    cr_expect(hook.submit(wild, nullptr, at_hour(10)).failure.has_value());
    expect_says(hook.submit(tame, nullptr, at_hour(10)), "fine");
  }
}

Test(lua_hook, lasts_for_many_calls, .timeout = 20) {
  LuaHook hook = good_hook(
      "function submit(job) local t = {} for i = 1, 100 do t[i] = job.user_name .. i end return "
      "t[100] end");
  JobFields job;
  for (int i = 0; i < 5000; ++i) {
    job["user_name"] = std::to_string(i) + "-";
    const HookOutcome outcome = hook.submit(job, nullptr, at_hour(10));
    cr_assert(outcome.message == std::to_string(i) + "-100");
  }
}

Test(lua_examples, office_hours, .timeout = 10) {
  LuaHook hook = example("office-hours.lua");
  JobFields job;
  job["gpus"] = std::int64_t{16};
  job["gpus_max"] = std::int64_t{16};
  const HookOutcome day = hook.submit(job, nullptr, at_hour(10));
  cr_expect_str_eq(
      day.message.c_str(),
      "on workdays from 8:00 to 18:00 a job may have at most 8 GPUs, and this one asks for "
      "16; ask for fewer or submit it later");
  cr_expect(not hook.submit(job, nullptr, at_hour(18)).refused);
  cr_expect(not hook.submit(job, nullptr, at_hour(7)).refused);
  std::tm sunday = at_hour(10);
  sunday.tm_wday = 0;
  cr_expect(not hook.submit(job, nullptr, sunday).refused);
  job["gpus_max"] = std::int64_t{8};
  cr_expect(not hook.submit(job, nullptr, at_hour(10)).refused);
  JobFields change;
  change["gpus"] = std::int64_t{12};
  cr_expect(hook.modify(job, change, nullptr, at_hour(10)).refused);
  cr_expect(not hook.modify(job, change, nullptr, at_hour(20)).refused);
}

Test(lua_examples, user_cap, .timeout = 10) {
  LuaHook hook = example("user-cap.lua");
  JobFields job, change;
  job["user_name"] = "alice";
  job["gpus_max"] = std::int64_t{16};
  cr_expect(not hook.submit(job, nullptr, at_hour(10)).refused);
  job["user_name"] = "mallory";
  expect_says(hook.submit(job, nullptr, at_hour(10)),
              "mallory may use at most 8 GPUs in a job, and this one could grow to 16");
  change["gpus"] = std::int64_t{9};
  cr_expect(hook.modify(job, change, nullptr, at_hour(10)).refused);
  change["gpus"] = std::int64_t{8};
  cr_expect(not hook.modify(job, change, nullptr, at_hour(10)).refused);
  cr_expect(not hook.modify(job, job, nullptr, at_hour(10)).failure);
}

Test(lua_examples, route_by_framework, .timeout = 10) {
  LuaHook hook = example("route-by-framework.lua");
  JobFields job;
  const HookOutcome plain = hook.submit(job, nullptr, at_hour(10));
  cr_expect(not plain.failure, "%s", plain.failure ? plain.failure->c_str() : "");
  cr_expect(not job["partition"]);
  job["framework"] = "pytorch";
  const HookOutcome routed = hook.submit(job, nullptr, at_hour(10));
  cr_expect(job.text("partition") == "gpu");
  cr_assert(routed.log.size() == 1);
  job["framework"] = "digits";
  hook.submit(job, nullptr, at_hour(10));
  cr_expect(job.text("partition") == "gpu", "the user's own choice stays");
}
