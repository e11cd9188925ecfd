// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "image/cache/cache.h"
#include "image/command/commands.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/size_text.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/base/time_text.h"

namespace bellows::image {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string cache = default_cache();
  std::vector<std::string> images;
  bool json = false;
};

int list(const Options& options) {
  const auto cache = Cache::open(options.cache);
  if (!cache) return fail(cache.error());
  const auto images = cache->list();
  if (!images) return fail(images.error());
  Json all = Json::array();
  Table table({{"LAST USED"}, {"SIZE", true}, {"DIGEST"}, {"USED BY"}, {"NAMES"}});
  for (const CachedImage& image : *images) {
    all.push_back({{"names", image.names},
                   {"digest", image.digest},
                   {"path", image.path},
                   {"bytes", image.bytes},
                   {"used", image.used},
                   {"users", image.users}});
    table.add(
        {date_text(image.used), size_text(image.bytes), image.digest.substr(0, 19),
         one_line(image.users.empty() ? "-" : fmt::format("{}", fmt::join(image.users, ", "))),
         one_line(fmt::format("{}", fmt::join(image.names, " ")))});
  }
  if (options.json)
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  else
    fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
  return kOk;
}

/// By its name or by as much of its digest as is shown.
Result<std::string> digest_in(const std::vector<CachedImage>& images, const std::string& wanted) {
  constexpr std::size_t kLeast = 19;
  const auto reference = container::parse_reference(wanted);
  for (const CachedImage& image : images) {
    const auto& names = image.names;
    if (wanted.size() >= kLeast && image.digest.starts_with(wanted)) return image.digest;
    if (reference && std::find(names.begin(), names.end(), reference->text()) != names.end())
      return image.digest;
  }
  return Error{ErrorKind::not_found,
               fmt::format("there is no image {}; bellows image list shows those there are",
                           one_line(wanted, 256))};
}

/// All of them where none is named.
int verify(const Options& options) {
  const auto cache = Cache::open(options.cache);
  if (!cache) return fail(cache.error());
  const auto images = cache->list();
  if (!images) return fail(images.error());
  std::vector<std::string> digests;
  for (const std::string& wanted : options.images) {
    const auto digest = digest_in(*images, wanted);
    if (!digest) return fail(digest.error());
    digests.push_back(*digest);
  }
  if (options.images.empty())
    for (const CachedImage& image : *images) digests.push_back(image.digest);
  Json all = Json::array();
  int status = kOk;
  for (const std::string& digest : digests) {
    const Status whole = cache->verify(digest);
    all.push_back({{"digest", digest}, {"whole", whole.ok()}});
    if (!whole) status = fail(whole.error());
    if (whole && !options.json) fmt::print("{} is whole\n", digest);
  }
  if (options.json) fmt::print("{}\n", all.dump(2));
  return status;
}

int remove(const Options& options) {
  const auto cache = Cache::open(options.cache);
  if (!cache) return fail(cache.error());
  const auto images = cache->list();
  if (!images) return fail(images.error());
  for (const std::string& wanted : options.images) {
    const auto digest = digest_in(*images, wanted);
    if (!digest) return fail(digest.error());
    if (const auto status = cache->remove(*digest); !status) return fail(status.error());
    fmt::print("removed {}\n", *digest);
  }
  return kOk;
}

}  // namespace

void add_keep_commands(CommandLine& program) {
  const auto options = std::make_shared<Options>();
  CommandLine show = program.add_command("list", "Show the images in the cache");
  show.add_flag("--json", options->json, "Print JSON");
  show.run([options] { return list(*options); });
  CommandLine drop = program.add_command("remove", "Remove images from the cache");
  drop.add_option("IMAGE", options->images, "Names, or digests as far as list shows them")
      .required();
  drop.run([options] { return remove(*options); });
  CommandLine check = program.add_command("verify", "Hold images against what was imported");
  check.add_option("IMAGE", options->images, "Names or digests; all images by default");
  check.add_flag("--json", options->json, "Print JSON");
  check.run([options] { return verify(*options); });
  for (CommandLine* command : {&show, &drop, &check})
    command->add_option("--cache", options->cache, "The directory of images").value_name("DIR");
}

}  // namespace bellows::image
