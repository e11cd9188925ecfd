// SPDX-License-Identifier: Apache-2.0
/// Scripts that mean harm. Each must be stopped soon; the generous limit here is for machines that
/// are busy with other tests.
#include <criterion/criterion.h>

#include <chrono>
#include <string>

#include "jobsubmit/lua/hook.h"
#include "tests/unit/jobsubmit/lua_support.h"

using namespace bellows;

namespace {

HookOutcome soon(const std::string& body) {
  LuaHook hook = good_hook("function submit(job, tenant)\n" + body + "\nend");
  JobFields job;
  const auto began = std::chrono::steady_clock::now();
  HookOutcome outcome = hook.submit(job, nullptr, at_hour(10));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  cr_expect(took.count() < 200, "%.1f ms: %s", took.count(), body.c_str());
  return outcome;
}

void expect_stopped(const std::string& body, const char* why) {
  HookOutcome outcome = soon(body);
  // A busy machine may reach the limit of time first.
  for (int again = 0; again < 4 && has(outcome.failure, "it takes longer"); ++again)
    outcome = soon(body);
  cr_expect(has(outcome.failure, why), "%s: %s", body.c_str(),
            outcome.failure ? outcome.failure->c_str() : "not stopped");
}

/// Stopped by whichever of instructions, time and memory is first on this machine.
void expect_stopped(const std::string& body) { expect_stopped(body, "it takes "); }

/// The body must return nothing; what it returns tells what went wrong.
void expect_fine(const std::string& body) {
  const HookOutcome outcome = soon(body);
  cr_expect(not outcome.failure, "%s: %s", body.c_str(),
            outcome.failure ? outcome.failure->c_str() : "");
  cr_expect(not outcome.refused, "%s: %s", body.c_str(), outcome.message.c_str());
}

constexpr const char* kInstructions = "it takes more than 100000 instructions";
constexpr const char* kMemory = "it takes more than 1024 KiB of memory";
constexpr const char* kText = "it makes a text of more than 8192 bytes";

}  // namespace

Test(lua_sandbox, has_only_what_is_listed, .timeout = 10) {
  expect_fine(
      "for _, name in ipairs({'io', 'os', 'debug', 'package', 'coroutine', 'utf8', 'require', "
      "'load',\n"
      "    'loadstring', 'loadfile', 'dofile', 'collectgarbage', 'print', 'warn', 'rawget', "
      "'rawset',\n"
      "    'rawequal', 'rawlen', 'setmetatable', 'getmetatable', 'xpcall', '_G', '_VERSION'}) do\n"
      "  if _ENV[name] ~= nil then return name end\n"
      "end\n"
      "for _, name in ipairs({'dump', 'match', 'gmatch', 'gsub', 'pack', 'unpack', 'packsize'}) "
      "do\n"
      "  if string[name] ~= nil or ('')[name] ~= nil then return name end\n"
      "end\n"
      "for _, name in ipairs({'move', 'pack'}) do if table[name] ~= nil then return name end end\n"
      "for _, name in ipairs({'random', 'randomseed'}) do if math[name] ~= nil then return name "
      "end end\n"
      "for name in pairs(_ENV) do if name ~= 'submit' then return name end end");
}

Test(lua_sandbox, takes_no_bytecode, .timeout = 10) {
  const auto hook = LuaHook::load(lua_settings("\x1bLuaT"), kJobFields);
  cr_assert(not hook.ok());
  cr_expect(hook.error().text.find("attempt to load a binary chunk") != std::string::npos, "%s",
            hook.error().text.c_str());
}

Test(lua_sandbox, library_works, .timeout = 10) {
  expect_fine(
      "assert(('a.b'):find('.') == 2 and not ('ab'):find('.') and select(2, ('abc'):find('bc')) == "
      "3)\n"
      "assert(('aXa'):find('a', 2) == 3 and ('a'):find('') == 1 and not ('a'):find('a', 9))\n"
      "assert(('gpu[1-4]'):starts('gpu[') and ('x.lua'):ends('.lua') and not ('x'):starts('xx'))\n"
      "local parts = ('a--b--'):split('--')\n"
      "assert(#parts == 3 and parts[2] == 'b' and parts[3] == '')\n"
      "assert(('  a b\\n'):trim() == 'a b' and (' '):trim() == '')\n"
      "assert(('ab'):rep(3) == 'ababab' and ('x'):rep(-1) == '' and (''):rep(5) == '')\n"
      "assert(('%5.1f|%s|%d%%'):format(1.25, true, 7) == '  1.2|true|7%')\n"
      "assert(('aBc'):upper():lower() == 'abc' and #'abc' == 3 and ('abc'):sub(-2) == 'bc')\n"
      "local list = {3, 1, 2}\n"
      "table.sort(list) assert(table.concat(list, ',') == '1,2,3')\n"
      "table.sort(list, function(a, b) return a > b end) assert(list[1] == 3)\n"
      "table.insert(list, 9) table.insert(list, 1, 8) assert(table.remove(list) == 9)\n"
      "assert(select('#', table.unpack(list)) == 4 and math.max(1, 5) == 5 and math.floor(2.5) == "
      "2)\n"
      "assert(tonumber('ff', 16) == 255 and tostring(1.5) == '1.5' and not pcall(error, 'x'))\n"
      "local sum = 0 for key, value in pairs({5, 6, x = 7}) do sum = sum + value end\n"
      "assert(sum == 18 and next({}) == nil and next({8}) == 1 and not pcall(pairs, nil))\n"
      "local names = {'b', 'a'} table.sort(names) assert(names[1] == 'a')");
}

Test(lua_sandbox, shows_no_addresses, .timeout = 10) {
  expect_fine(
      "if tostring({}) ~= 'table' or tostring(job) ~= 'userdata' then return tostring({}) end");
  expect_fine("if tostring(print or pcall) ~= 'function' then return tostring(pcall) end");
  for (const char* body : {"return ('%p'):format('x')", "return ('%-20p'):format('x')",
                           "return ('%s'):format({})", "return ('%s'):format(job)",
                           "return ('%s'):format(pcall)", "return ('%%%q'):format('x')"}) {
    const HookOutcome outcome = soon(body);
    cr_expect(outcome.failure.has_value(), "%s: %s", body, outcome.message.c_str());
    cr_expect(not has(outcome.failure, "0x"));
  }
}

Test(lua_sandbox, shared_things_cannot_be_changed, .timeout = 10) {
  for (const char* body :
       {"string.lower = function() return 'evil' end", "('').lower = 1", "string.new = 1",
        "math.huge = 0", "table.insert(string, 'x')", "table.insert(table, 1, 1)",
        "table.sort(math)", "job.new = 1", "now.hour = 1", "for k, v in pairs(string) do end",
        "next(string)", "table.insert(job, 1)"})
    cr_expect(soon(body).failure.has_value(), "%s", body);
}

Test(lua_sandbox, endless_loops, .timeout = 10) {
  expect_stopped("while true do end", kInstructions);
  expect_stopped("::again:: goto again", kInstructions);
  expect_stopped("for i = 1, math.huge do end", kInstructions);
  expect_stopped("local function f() return f() end f()", kInstructions);
  expect_stopped("for k in function() return 1 end do end", kInstructions);
}

Test(lua_sandbox, swallowed_limits, .timeout = 10) {
  expect_stopped("while true do pcall(function() while true do end end) end", kInstructions);
  expect_stopped("local function f() while true do pcall(f) end end f()");
  expect_stopped("local function f() pcall(f) end while true do f() end");
  expect_stopped("while true do pcall(error) end");
  expect_stopped("while true do pcall(pcall, pcall, pcall, error, {}) end");
  expect_stopped("pcall(function() while true do end end) return 'went on'", kInstructions);
  expect_stopped(
      "pcall(string.rep, ('x'):rep(100), 80) local t = {}\n"
      "pcall(function() for i = 1, 1e9 do t[i] = i end end) t = nil return 'went on'",
      kMemory);
  expect_stopped(
      "local s = 'x' pcall(function() while true do s = s .. s end end) return 'went on'", kText);
  expect_stopped("table.sort({3, 2, 1}, function() pcall(function() while true do end end) end)",
                 kInstructions);
  expect_stopped("pcall(table.sort, {3, 2, 1}, function() while true do end end) return 'went on'",
                 kInstructions);
}

Test(lua_sandbox, memory, .timeout = 10) {
  expect_stopped("local t = {} for i = 1, 1e9 do t[i] = i end", kMemory);
  expect_stopped("local t = {} for i = 1, 1e9 do t[i] = {} end", kMemory);
  expect_stopped("local t = {} for i = 1, 1e9 do t[-i] = i end", kMemory);
  expect_stopped("for i = 1, 1e9 do local t = {1, 2, 3, 4, 5, 6, 7, 8} end", kMemory);
  expect_stopped("for i = 1, 1e9 do local f = function() return i end end");
  expect_stopped("local s = ('x'):rep(8000) while true do local t = s:lower() end", kMemory);
  expect_stopped("local s = 'x' while true do s = s .. s end", kText);
  expect_stopped("local s = ('x'):rep(8000) return s .. s", kText);
  expect_stopped("local t = {} for i = 1, 1000 do t[i] = ('x'):rep(100) end table.concat(t)",
                 kText);
  expect_stopped("local s = ('x'):rep(8000) return ('%s%s'):format(s, s)", kText);
  std::string constructor = "local t = {";
  for (int i = 0; i < 50000; ++i) constructor += "{},";
  expect_stopped(constructor + "}", kMemory);
}

Test(lua_sandbox, repetition, .timeout = 10) {
  for (const char* body : {"('x'):rep(1e9)", "('x'):rep(math.maxinteger)", "('xy'):rep(4097)"})
    expect_stopped(body, "a text may have at most 8192 bytes");
  expect_fine("for _ = 1, 100 do (''):rep(math.maxinteger) end");
  expect_stopped("('x'):rep(3, 'y')", "rep takes two arguments");
}

Test(lua_sandbox, recursion, .timeout = 10) {
  expect_stopped("local function f() return 1 + f() end f()");
  expect_stopped("local function f(...) return f(1, ...) end f()");
  expect_stopped("local function f(n) table.sort({2, 1}, f) end f()", "C stack overflow");
  expect_stopped("local function f() pcall(f) pcall(f) end f()");
  expect_stopped(
      "local function f(n) if n == 0 then error('deep') end return 1 + f(n - 1) end f(1000)",
      "more than 200 nested calls");
  const auto nested = LuaHook::load(
      lua_settings("x = " + std::string(5000, '(') + "1" + std::string(5000, ')')), kJobFields);
  cr_assert(not nested.ok());
  cr_expect(nested.error().text.find("overflow") != std::string::npos, "%s",
            nested.error().text.c_str());
}

Test(lua_sandbox, errors_in_errors, .timeout = 10) {
  expect_stopped("error(setmetatable({}, {__tostring = function() while true do end end}))",
                 "attempt to call a nil value (global 'setmetatable')");
  expect_stopped("error({})", "an error that is a table");
  expect_stopped("error(job)", "an error that is a userdata");
  expect_stopped("error(function() while true do end end)", "an error that is a function");
  const HookOutcome longest = soon("error(('x'):rep(8000))");
  cr_assert(longest.failure.has_value());
  cr_expect(longest.failure->size() == 2048 && longest.failure->ends_with("..."));
  expect_stopped("local function f() error(('x'):rep(8000), 2) end f()", "xxx");
  expect_stopped("error('a\\27[31mb')", "a?[31mb");
}

Test(lua_sandbox, nothing_runs_after_the_call, .timeout = 10) {
  expect_stopped("local x <close> = {}", "got a non-closable value");
  expect_stopped("for i in pairs, {}, nil, {} do end", "got a non-closable value");
  expect_fine("local x <close> = nil");
}

Test(lua_sandbox, work_inside_c_functions, .timeout = 10) {
  const std::string thousand = "local t = {} for i = 1, 1000 do t[i] = (i * 7919) % 1000 end\n";
  const std::string big = "local s = ('a'):rep(8000)\n";
  expect_stopped(thousand + "while true do table.sort(t) end");
  expect_stopped(thousand + "while true do table.sort(t, function(a, b) return a > b end) end");
  expect_stopped(thousand + "t[1001] = 1 table.sort(t)", "a list may have at most 1000 items here");
  expect_stopped(thousand + "while true do table.insert(t, 1, table.remove(t)) end");
  expect_stopped(thousand + "while true do table.unpack(t) end");
  expect_stopped(thousand + "while true do table.concat(t) end");
  expect_stopped("table.concat({}, '', 1, 1e15)", "at most 2 arguments");
  expect_stopped("table.unpack({}, 1, 1e6)", "at most 1 arguments");
  expect_stopped(big + "while true do s:find('b') end");
  expect_stopped(big + "local p = ('a'):rep(4000) .. 'b' while true do s:find(p) end");
  expect_stopped(big + "s:find('.-.-.-b', 1, false)", "find takes no patterns");
  expect_stopped(big + "while true do s:split('a') end", "split gives at most 1000 pieces");
  expect_stopped(big + "local a, b = s .. 'b', s .. 'c' while true do local x = a < b end");
  expect_stopped(big + "local a, b = s .. 'b', s .. 'b' while true do local x = a == b end");
  expect_stopped(big + "while true do s:byte(1, -1) end");
  expect_stopped("local f = ('%99.99f'):rep(40) while true do pcall(f.format, f, 1) end");
}

Test(lua_sandbox, lists_with_bad_order_or_holes, .timeout = 10) {
  const std::string list = "local t = {} for i = 1, 100 do t[i] = i % 7 end\n";
  expect_stopped(list + "table.sort(t, function() return true end)", "invalid order function");
  expect_stopped(list + "table.sort(t, function() error('mine') end)", "mine");
  expect_stopped("table.sort({1, 'a', {}})", "attempt to compare");
  // A border may be anywhere that a nil follows: here near 2^62, where a naive insert would count.
  soon("local t, i = {1, 2}, 4 while i > 0 do t[i] = 1 i = i * 2 end table.insert(t, 1, 1)");
  expect_stopped(
      "local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 20000 do t[i] = nil end\n"
      "while true do next(t) end");
}

Test(lua_sandbox, texts_are_not_numbers, .timeout = 10) {
  expect_stopped("return 'x' .. ('10' + 1)", "attempt to perform arithmetic on a string value");
  expect_fine("if '10' .. 1 ~= '101' then return 'concatenation' end");
}

Test(lua_sandbox, fields_are_charged, .timeout = 10) {
  expect_stopped("while true do pcall(function() return job.partitoin end) end");
  expect_stopped(
      "local t = {} for i = 1, 1000 do t[i] = 'x' end while true do job.features = t end");
  expect_stopped("while true do log('x') end");
  expect_stopped("job.features = {('x'):rep(4000)} while true do local t = job.features end",
                 kMemory);
}
