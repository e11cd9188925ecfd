// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <optional>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "checkpoint/system/retry.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/contents.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/text.h"
#include "launcher/ckpt/verify.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

struct Row {
  std::uint64_t step = 0;
  Result<Manifest> manifest;
  std::optional<std::size_t> arrays;  ///< none: it can't be read
  std::vector<std::string> names;
  bool newest = false;
};

struct Listing {
  std::string dir;
  std::vector<Row> rows;
  StepNames dangling;  ///< names of steps that are gone
};

Row read_row(const StepPlace& place, std::vector<std::string> names) {
  Row row{place.step, read_manifest(place.path()), {}, std::move(names), false};
  if (!row.manifest) return row;
  auto contents = StepContents::open(place);
  if (contents) {
    row.arrays = contents->arrays().size();
  } else {
    row.manifest = contents.error();
  }
  return row;
}

Result<Listing> read_listing(const std::string& given) {
  auto dir = find_checkpoint_dir(given);
  if (!dir) return dir.error();
  auto steps = list_steps(*dir);
  if (!steps) return steps.error();
  auto names = read_step_names(*dir);
  if (!names) return names.error();
  Listing out;
  out.dir = *dir;
  std::map<std::uint64_t, std::vector<std::string>> named;
  for (const auto& [name, step] : *names) named[step].push_back(one_line(name));
  for (std::uint64_t step : *steps) {
    out.rows.push_back(read_row({*dir, step}, named[step]));
    named.erase(step);
  }
  if (!out.rows.empty()) out.rows.back().newest = true;
  for (const auto& [step, gone] : named) {
    for (const std::string& name : gone) out.dangling.emplace(name, step);
  }
  return out;
}

const char* state_of(const Row& row) {
  if (row.manifest) return "committed";
  return may_pass(row.manifest.error()) ? "unreadable" : "damaged";
}

ordered_json json_of(const Listing& listing) {
  ordered_json steps = ordered_json::array();
  for (const Row& row : listing.rows) {
    ordered_json step = {{"step", row.step},       {"path", step_path(listing.dir, row.step)},
                         {"state", state_of(row)}, {"newest", row.newest},
                         {"names", row.names},     {"error", nullptr}};
    if (row.manifest) {
      step.update({{"time", row.manifest->time},
                   {"world", row.manifest->world},
                   {"attempt", row.manifest->attempt},
                   {"bytes", size_of(*row.manifest)},
                   {"arrays", nullptr}});
      if (row.arrays) step["arrays"] = *row.arrays;
    } else {
      step["error"] = row.manifest.error().text;
    }
    steps.push_back(step);
  }
  return {{"dir", listing.dir}, {"steps", steps}, {"names_of_no_step", listing.dangling}};
}

void print_row(const Row& row) {
  const std::string state = fmt::format("{}{}", state_of(row), row.newest ? ", newest" : "");
  fmt::print("{:>12}  {:<19}  {:>6}  {:>11}  {:>6}  {:<18} {}\n", row.step,
             row.manifest ? time_text(row.manifest->time) : "-",
             row.manifest ? std::to_string(row.manifest->world) : "-",
             row.manifest ? size_text(size_of(*row.manifest)) : "-",
             row.arrays ? std::to_string(*row.arrays) : "-", state, fmt::join(row.names, ", "));
}

}  // namespace

int ckpt_list(const CkptOptions& options) {
  auto listing = read_listing(options.dir);
  if (!listing) return complain("list", listing.error());
  if (options.json) {
    print_json(json_of(*listing));
    return kOk;
  }
  fmt::print("{:>12}  {:<19}  {:>6}  {:>11}  {:>6}  {:<18} {}\n", "STEP", "SAVED", "RANKS", "SIZE",
             "ARRAYS", "STATE", "NAMES");
  for (const Row& row : listing->rows) print_row(row);
  for (const Row& row : listing->rows) {
    if (!row.manifest) fmt::print("step {}: {}\n", row.step, one_line(row.manifest.error().text));
  }
  for (const auto& [name, step] : listing->dangling) {
    fmt::print("the name {} belongs to step {}, which is gone\n", name, step);
  }
  return kOk;
}

}  // namespace bellows
