// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/base/time_text.h"
#include "pool/command/commands.h"
#include "pool/command/keeper_client.h"
#include "pool/wire/pool_place.h"
#include "pool/wire/pool_settings.h"

namespace bellows::pool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string name;
  bool json = false;
  bool once = false;
  bool proxy = false;
  std::uint32_t interval = 2;
};

const char* state_name(MemberState state) {
  switch (state) {
    case PENDING:
      return "pending";
    case STARTING:
      return "starting";
    case READY:
      return "ready";
    case DRAINING:
      return "draining";
    default:
      return "ended";
  }
}

std::uint32_t count(const Pool& pool, MemberState state) {
  std::uint32_t members = 0;
  for (const Member& member : pool.member()) members += member.state() == state ? 1 : 0;
  return members;
}

void print(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

Json json_of(const Member& member) {
  Json metrics = Json::object();
  for (const Metric& metric : member.metric())
    metrics[metric.name()] = {{"value", metric.value()}, {"age_ms", metric.age_ms()}};
  return {{"job", member.job()},
          {"state", state_name(member.state())},
          {"address", member.address()},
          {"node", member.node()},
          {"submitted_ms", member.submitted_ms()},
          {"ready_ms", member.ready_ms() == 0 ? Json() : Json(member.ready_ms())},
          {"metrics", metrics}};
}

Json json_of(const Pool& pool) {
  Json members = Json::array();
  for (const Member& member : pool.member())
    if (member.state() != ENDED) members.push_back(json_of(member));
  return {{"name", pool.name()},
          {"keeper_job", pool.keeper_job()},
          {"min", pool.min()},
          {"max", pool.max()},
          {"wanted", pool.wanted()},
          {"ready", count(pool, READY)},
          {"why", pool.why()},
          {"scaled_to", pool.scaled_to() == 0 ? Json() : Json(pool.scaled_to())},
          {"ending", pool.ending()},
          {"proxy", pool.proxy().empty() ? Json() : Json(pool.proxy())},
          {"trouble", pool.trouble().empty() ? Json() : Json(pool.trouble())},
          {"members", members}};
}

std::string metrics_of(const Member& member) {
  std::string text;
  for (const Metric& metric : member.metric())
    text += fmt::format("{}{}={:.4g}", text.empty() ? "" : " ", metric.name(), metric.value());
  return one_line(text);
}

void print_text(const Pool& pool) {
  fmt::print("pool {}: {} ready of {} wanted ({} to {}), keeper is job {}\n", pool.name(),
             count(pool, READY), pool.wanted(), pool.min(), pool.max(), pool.keeper_job());
  fmt::print("why: {}\n", one_line(pool.why()));
  if (!pool.proxy().empty()) fmt::print("http://{}\n", one_line(pool.proxy()));
  if (!pool.trouble().empty()) fmt::print("trouble: {}\n", one_line(pool.trouble()));
  Table table({{"JOB"}, {"STATE"}, {"NODE"}, {"ADDRESS"}, {"METRICS"}});
  for (const Member& member : pool.member())
    if (member.state() != ENDED)
      table.add({std::to_string(member.job()), state_name(member.state()), one_line(member.node()),
                 one_line(member.address()), metrics_of(member)});
  fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
}

/// The pool as its keeper describes it, by name.
Result<Pool> ask(const std::string& name) {
  const auto dir = find_pool(name);
  if (!dir) return dir.error();
  return ask_pool(*dir);
}

int show(const Options& options) {
  const auto pool = ask(options.name);
  if (!pool) return fail(pool.error());
  if (options.json)
    print(json_of(*pool));
  else
    print_text(*pool);
  return kOk;
}

int explain(const Options& options) {
  const auto pool = ask(options.name);
  if (!pool) return fail(pool.error());
  if (options.json)
    print({{"wanted", pool->wanted()}, {"why", pool->why()}});
  else
    fmt::print("{} members: {}\n", pool->wanted(), one_line(pool->why()));
  return kOk;
}

/// One line or object for a pool whose keeper may be away.
int list(const Options& options) {
  const auto names = pool_names();
  if (!names) return fail(names.error());
  Json pools = Json::array();
  Table table({{"POOL"},
               {"READY", true},
               {"WANTED", true},
               {"MIN", true},
               {"MAX", true},
               {"KEEPER"},
               {"WHY"}});
  for (const std::string& name : *names) {
    const auto pool = ask(name);
    if (pool) {
      pools.push_back(json_of(*pool));
      table.add({name, std::to_string(count(*pool, READY)), std::to_string(pool->wanted()),
                 std::to_string(pool->min()), std::to_string(pool->max()),
                 std::to_string(pool->keeper_job()), one_line(pool->why())});
    } else {
      pools.push_back({{"name", name}, {"trouble", pool.error().text}});
      table.add({name, "-", "-", "-", "-", "-", one_line(pool.error().text)});
    }
  }
  if (options.json)
    print(pools);
  else
    fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
  return kOk;
}

int top(const Options& options) {
  const bool screen = isatty(STDOUT_FILENO) && !options.once;
  for (;;) {
    const auto pool = ask(options.name);
    if (screen) fmt::print("\x1b[H\x1b[2J");
    if (!pool && (options.once || pool.error().kind == ErrorKind::not_found))
      return fail(pool.error());
    if (pool)
      print_text(*pool);
    else
      fmt::print("{}\n", pool.error().text);
    std::fflush(stdout);
    if (options.once) return kOk;
    std::this_thread::sleep_for(std::chrono::seconds(options.interval));
  }
}

int endpoint(const Options& options) {
  const auto pool = ask(options.name);
  if (!pool) return fail(pool.error());
  if (options.proxy && pool->proxy().empty())
    return fail({ErrorKind::invalid, "pool " + options.name + " was made without --http"});
  Json addresses = Json::array();
  if (options.proxy) addresses.push_back(pool->proxy());
  for (const Member& member : pool->member())
    if (!options.proxy && member.state() == READY && !member.address().empty())
      addresses.push_back(member.address());
  if (options.json) {
    // What Prometheus reads as a file of its service discovery.
    print(Json::array({{{"targets", addresses}, {"labels", {{"pool", options.name}}}}}));
    return kOk;
  }
  for (const Json& address : addresses) fmt::print("{}\n", one_line(address.get<std::string>()));
  return kOk;
}

CommandLine add(CommandLine& pool, const char* name, const char* help,
                const std::shared_ptr<Options>& options, int (*run)(const Options&)) {
  CommandLine command = pool.add_command(name, help);
  command.run([options, run] { return run(*options); });
  return command;
}

CommandLine add_of_pool(CommandLine& pool, const char* name, const char* help,
                        const std::shared_ptr<Options>& options, int (*run)(const Options&)) {
  CommandLine command = add(pool, name, help, options, run);
  command.add_option("NAME", options->name, "The pool").required();
  return command;
}

}  // namespace

void add_show_commands(CommandLine& pool) {
  auto options = std::make_shared<Options>();
  add(pool, "list", "Show your pools", options, list)
      .add_flag("--json", options->json, "Print JSON");
  options = std::make_shared<Options>();
  add_of_pool(pool, "show", "Show a pool and its members", options, show)
      .add_flag("--json", options->json, "Print JSON");
  options = std::make_shared<Options>();
  add_of_pool(pool, "explain", "Say why a pool has its size", options, explain)
      .add_flag("--json", options->json, "Print JSON");
  options = std::make_shared<Options>();
  CommandLine command = add_of_pool(
      pool, "endpoint", "Print the addresses of the members that take calls", options, endpoint);
  command.add_flag("--json", options->json, "Print them as Prometheus reads them");
  command.add_flag("--proxy", options->proxy, "Print that of the pool's HAProxy instead");
  options = std::make_shared<Options>();
  command = add_of_pool(pool, "top", "Show a pool again and again", options, top);
  command.add_option("--interval", options->interval, "Seconds between two looks")
      .value_name("SECONDS")
      .between(1, 3600)
      .show_default();
  command.add_flag("--once", options->once, "Look once");
}

}  // namespace bellows::pool
