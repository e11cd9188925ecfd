// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/lasting/upkeep.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/other_program.h"
#include "launcher/base/size_text.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/base/time_text.h"
#include "launcher/cli/commands.h"

namespace bellows {
namespace {

using Json = nlohmann::ordered_json;

std::string default_directory() {
  const char* set = std::getenv(lasting::kDirectoryVariable);
  return set == nullptr || *set == '\0' ? lasting::kDirectory : set;
}

struct Options {
  std::string directory = default_directory();
  std::vector<std::string> names;
  std::optional<std::uint32_t> older;
  bool json = false;
};

int fail(const Error& error) { return fail_as("container", error); }

/// Invalid: the user has none on this node.
Result<Fd> users_of(const Options& options) {
  auto users = lasting::find_users(options.directory, ::getuid());
  if (users || users.error().kind != ErrorKind::not_found) return users;
  return Fd();
}

std::string user_of(const lasting::Listed& container) {
  if (!container.in_use) return "-";
  return container.job ? fmt::format("job {}", *container.job) : "a job";
}

int list(const Options& options) {
  const auto users = users_of(options);
  if (!users) return fail(users.error());
  const auto all = *users ? lasting::list(users->get()) : Result(std::vector<lasting::Listed>());
  if (!all) return fail(all.error());
  Json json = Json::array();
  Table table({{"NAME"}, {"LAST USED"}, {"SIZE", true}, {"USED BY"}, {"IMAGE"}});
  for (const auto& container : *all) {
    json.push_back({{"name", container.name},
                    {"image", container.image},
                    {"bytes", container.bytes},
                    {"used", container.used},
                    {"in_use", container.in_use}});
    if (container.job) json.back()["job"] = *container.job;
    table.add({one_line(container.name), date_text(container.used), size_text(container.bytes),
               user_of(container), one_line(container.image)});
  }
  if (options.json)
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  else
    fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
  return kOk;
}

int remove(const Options& options) {
  if (options.names.empty() && !options.older)
    throw WrongUsage{"name the containers to be removed, or give --older"};
  const auto users = users_of(options);
  if (!users) return fail(users.error());
  int status = kOk;
  for (const std::string& name : options.names) {
    const auto removed = *users
                             ? lasting::remove(users->get(), name)
                             : Status(Error{ErrorKind::not_found, "there is no container " + name});
    if (!removed)
      status = fail(removed.error());
    else
      fmt::print("removed {}\n", name);
  }
  if (!options.older || !*users) return status;
  const std::int64_t before = std::time(nullptr) - std::int64_t{*options.older} * 86400;
  const auto removed = lasting::remove_older(users->get(), before);
  if (!removed) return fail(removed.error());
  for (const std::string& name : *removed) fmt::print("removed {}\n", one_line(name));
  return status;
}

}  // namespace

void add_container_command(CommandLine& program) {
  CommandLine command = program.add_command(
      "container", "Show and remove containers on this node that outlive their jobs");
  command.require_command();
  const auto options = std::make_shared<Options>();
  CommandLine show = command.add_command("list", "Show your containers on this node");
  show.add_flag("--json", options->json, "Print JSON");
  show.run([options] { return list(*options); });
  CommandLine drop = command.add_command("remove", "Remove containers that no job uses");
  drop.add_option("NAME", options->names, "Containers");
  drop.add_option("--older", options->older, "Also those that no job has used for so many days")
      .value_name("DAYS");
  drop.run([options] { return remove(*options); });
  for (CommandLine* each : {&show, &drop})
    each->add_option("--dir", options->directory, "The site's directory of containers")
        .value_name("DIR");
}

}  // namespace bellows
