// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "checkpoint/system/retry.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/text.h"
#include "launcher/ckpt/verify.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

Result<std::vector<StepPlace>> places_of(const CkptOptions& options) {
  std::vector<StepPlace> places;
  if (options.all) {
    auto dir = find_checkpoint_dir(options.dir);
    if (!dir) return dir.error();
    auto steps = list_steps(*dir);
    if (!steps) return steps.error();
    for (std::uint64_t step : *steps) places.push_back({*dir, step});
    return places;
  }
  std::vector<std::string> texts = options.steps;
  if (texts.empty()) texts.push_back("");
  for (const std::string& text : texts) {
    auto place = find_step(options.dir, text);
    if (!place) return place.error();
    places.push_back(*place);
  }
  return places;
}

ordered_json json_of(const StepPlace& place, const Result<Manifest>& verified, double seconds) {
  ordered_json out = {{"step", place.step}, {"path", place.path()}, {"good", verified.ok()},
                      {"seconds", seconds}, {"bytes", nullptr},     {"error", nullptr}};
  if (verified) {
    out["bytes"] = size_of(*verified);
  } else {
    if (may_pass(verified.error())) out["good"] = nullptr;
    out["error"] = verified.error().text;
  }
  return out;
}

void print_result(const StepPlace& place, const Result<Manifest>& verified) {
  if (verified) {
    fmt::print("step {} is good: {} in {} file{}\n", place.step, size_text(size_of(*verified)),
               verified->shards.size(), verified->shards.size() == 1 ? "" : "s");
  } else {
    fmt::print(stderr, "bellows ckpt verify: step {} {}: {}\n", place.step,
               may_pass(verified.error()) ? "cannot be read" : "is bad",
               one_line(verified.error().text));
  }
  std::fflush(stdout);
}

}  // namespace

int ckpt_verify(const CkptOptions& options) {
  auto places = places_of(options);
  if (!places) return complain("verify", places.error());
  ProgressBar progress(options.progress());
  ordered_json results = ordered_json::array();
  bool good = true;
  for (const StepPlace& place : *places) {
    const auto began = std::chrono::steady_clock::now();
    auto verified = verify_shown(place, progress);
    progress.end();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    good = good && verified.ok();
    results.push_back(json_of(place, verified, took.count()));
    if (!options.json) print_result(place, verified);
  }
  if (options.json) print_json({{"good", good}, {"steps", results}});
  return good ? kOk : kFailed;
}

}  // namespace bellows
