// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "pool/command/commands.h"
#include "pool/command/keeper_client.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

struct Options {
  std::string name;
  std::string size;
  std::uint32_t job = 0;
};

int change(const std::string& name, const ChangeRequest& request) {
  const auto dir = find_pool(name);
  if (!dir) return fail(dir.error());
  const auto pool = change_pool(*dir, request);
  if (!pool) return fail(pool.error());
  fmt::print("pool {} wants {}: {}\n", pool->name(), pool->wanted(), one_line(pool->why()));
  return kOk;
}

std::string size_complaint(const std::string& text) {
  const auto size = parse_uint(text);
  return text == "auto" || (size && *size > 0 && *size <= UINT32_MAX)
             ? ""
             : "it is a number of members, or auto";
}

int scale(const Options& options) {
  ChangeRequest request;
  const auto size = parse_uint(options.size);
  request.set_scale(static_cast<std::uint32_t>(size.value_or(0)));
  return change(options.name, request);
}

int drain(const Options& options) {
  ChangeRequest request;
  request.set_drain_job(options.job);
  return change(options.name, request);
}

}  // namespace

void add_change_commands(CommandLine& pool) {
  auto options = std::make_shared<Options>();
  CommandLine command = pool.add_command("scale", "Hold a pool at a size, or let it decide again");
  command.add_option("NAME", options->name, "The pool").required();
  command.add_option("SIZE", options->size, "Members, or auto: the policy decides")
      .check(size_complaint)
      .required();
  command.run([options] { return scale(*options); });

  options = std::make_shared<Options>();
  command = pool.add_command("drain", "Replace a member: it ends its calls, and another one comes");
  command.add_option("NAME", options->name, "The pool").required();
  command.add_option("JOB", options->job, "The member's job").required();
  command.run([options] { return drain(*options); });
}

}  // namespace bellows::pool
