// SPDX-License-Identifier: Apache-2.0
// How long each phase takes, with BELLOWS_MEASURE in the environment; printed and not asserted,
// since the machine may have other work.
#include <criterion/criterion.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/text.h"
#include "tests/unit/spank/container_rootfs_support.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(rootfs_time, .timeout = 300);

constexpr std::size_t kRuns = 20;

/// "PHASE=MICROSECONDS;..." of one container.
std::string timed(const World& world, const Spec& spec) {
  return run_as_user({}, [&]() -> std::string {
    Phases phases;
    const std::string error = world.build(
        spec, {}, [] { return ""; }, phases);
    if (!error.empty()) return error;
    std::string text;
    for (const auto& entry : phases.entries())
      text += std::string(entry.name) + "=" + std::to_string(entry.took.count() / 1000) + ";";
    return text;
  });
}

void print(const char* what, const World& world, const Spec& spec) {
  std::map<std::string, std::vector<std::uint64_t>> took;
  for (std::size_t run = 0; run < kRuns; run++) {
    std::uint64_t sum = 0;
    const std::string text = timed(world, spec);
    cr_assert(!text.starts_with("error"), "%s", text.c_str());
    for (const auto field : split(text, ';')) {
      const auto equals = field.find('=');
      if (equals == std::string_view::npos) continue;
      const auto value = parse_uint(field.substr(equals + 1)).value_or(0);
      took[std::string(field.substr(0, equals))].push_back(value);
      sum += value;
    }
    took["sum"].push_back(sum);
  }
  std::string line;
  for (auto& [name, values] : took) {
    std::sort(values.begin(), values.end());
    line += name + " " + std::to_string(values[values.size() / 2]) + ", ";
  }
  cr_log_warn("%s: p50 in us: %s", what, line.c_str());
}

Test(rootfs_time, by_image) {
  NEEDS_ROOT();
  if (std::getenv("BELLOWS_MEASURE") == nullptr)
    cr_skip_test("set BELLOWS_MEASURE to measure with an image of 300 MB");
  World world;
  world.tree("small");
  world.tree("large");
  const auto fill = [&world](const std::string& tree, std::size_t mib) {
    std::ifstream random("/dev/urandom");
    std::string block(1 << 20, '\0');
    for (std::size_t i = 0; i < mib; i++) {
      random.read(block.data(), static_cast<std::streamsize>(block.size()));
      world.file(tree + "/opt/" + std::to_string(i), block);
    }
  };
  world.directory("small/opt");
  world.directory("large/opt");
  fill("small", 3);
  fill("large", 300);
  Spec spec;
  spec.image = world.squash("small", "small.sqsh");
  print("squashfs of 3 MB", world, spec);
  auto overlay = spec;
  overlay.mounts = {bound("/etc", "/missing")};
  print("squashfs of 3 MB that lacks a target", world, overlay);
  overlay.mounts.clear();
  overlay.writable = true;
  print("squashfs of 3 MB, writable", world, overlay);
  spec.image = world.squash("large", "large.sqsh");
  print("squashfs of 300 MB", world, spec);
  spec.image = world.path("small");
  print("directory", world, spec);
  spec.mounts = {bound("/etc", "/missing")};
  print("directory that lacks a target", world, spec);
}

}  // namespace
