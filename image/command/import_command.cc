// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/container/mount_grammar.h"
#include "common/text.h"
#include "image/cache/cache.h"
#include "image/command/commands.h"
#include "image/command/lease_holder.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/size_text.h"

namespace bellows::image {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string name;
  std::string cache = default_cache();
  std::uint32_t patience = 60;
  std::uint64_t most_gib = 256;
  std::string budget = "512G";
  std::optional<std::uint32_t> job;
  bool json = false;
};

void say(const std::string& sentence) { fmt::print(stderr, "bellows image: {}\n", sentence); }

/// A line every few seconds, since nobody wants one for each megabyte in a job's output.
class Progress {
 public:
  explicit Progress(std::string name) : name_(std::move(name)) {}
  void operator()(std::uint64_t bytes) {
    constexpr std::chrono::seconds kPause{5};
    if (Clock::now() - last_ < kPause) return;
    last_ = Clock::now();
    say(fmt::format("fetching {}: {} so far", name_, size_text(bytes)));
  }

 private:
  std::string name_;
  Clock::time_point last_ = Clock::now();
};

int import(const Options& options) {
  const auto reference = container::parse_reference(options.name);
  if (!reference) return fail(reference.error());
  const auto cache = Cache::open(options.cache);
  if (!cache) return fail(cache.error());
  const auto budget = container::parse_size(options.budget);
  if (!budget) return fail(budget.error());
  ImportOptions wanted;
  wanted.budget = *budget << 20;
  if (options.job) wanted.user = lease_name(*options.job);
  wanted.limits.bytes = wanted.fetch.most_bytes = options.most_gib << 30;
  wanted.fetch.stall_seconds = options.patience;
  wanted.fetch.progress = Progress(reference->place());
  wanted.say = say;
  const auto imported = cache->import(*reference, wanted);
  if (!imported) return fail(imported.error());
  if (imported->lease)
    if (auto status = keep_lease(imported->lease); !status) return fail(status.error());
  const CachedImage& image = imported->image;
  if (options.json) {
    const Json json = {{"name", reference->text()},
                       {"digest", image.digest},
                       {"path", image.path},
                       {"bytes", image.bytes},
                       {"reused", imported->reused}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}\n", image.path);
  }
  return kOk;
}

}  // namespace

void add_import_command(CommandLine& program) {
  const auto options = std::make_shared<Options>();
  CommandLine command = program.add_command(
      "import", "Fetch an image, unless it is in the cache, and print its root directory");
  command.add_option("IMAGE", options->name, "docker://REGISTRY/NAME:TAG, or as pyxis has it")
      .required();
  command.add_option("--cache", options->cache, "The directory of images").value_name("DIR");
  command
      .add_option("--patience", options->patience,
                  "Seconds after which a registry that sends nothing is given up")
      .between(1, 86400)
      .show_default()
      .value_name("SECONDS");
  command
      .add_option("--most", options->most_gib, "The most that the image may have, in GiB, unpacked")
      .show_default()
      .value_name("GIB");
  command.add_option("--budget", options->budget, "The most that all images may have together")
      .show_default()
      .value_name("SIZE");
  command
      .add_option("--for-job", options->job,
                  "Keep the image from being removed until this process's cgroup ends")
      .value_name("JOB");
  command.add_flag("--json", options->json, "Print JSON");
  command.run([options] { return import(*options); });
}

}  // namespace bellows::image
