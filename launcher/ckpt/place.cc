// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/place.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/retention.h"
#include "checkpoint/store/store.h"
#include "common/text.h"
#include "launcher/ckpt/text.h"

namespace bellows {
namespace {

namespace fs = std::filesystem;

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

Result<StepPlace> newest_in(const std::string& dir) {
  auto steps = list_steps(dir);
  if (!steps) return steps.error();
  if (!steps->empty()) return StepPlace{dir, steps->back()};
  return Error{ErrorKind::not_found,
               fmt::format("{} holds no committed checkpoint: name another directory with --dir or "
                           "BELLOWS_CHECKPOINT_DIR",
                           one_line(dir))};
}

Result<StepPlace> step_in(const std::string& dir, std::uint64_t step) {
  StepPlace place{dir, step};
  if (is_directory(place.path())) return place;
  return Error{
      ErrorKind::not_found,
      fmt::format("there is no step {} in {}: see 'bellows ckpt list'", step, one_line(dir))};
}

/// Of a directory, which a link may lead to: a step's own or one with steps in it.
Result<StepPlace> step_at(const std::string& path) {
  std::error_code code;
  const fs::path real = fs::canonical(path, code);
  if (code) return Error{ErrorKind::io, fmt::format("cannot find {}: {}", path, code.message())};
  if (auto step = parse_step_name(real.filename().string())) {
    return StepPlace{real.parent_path().string(), *step};
  }
  if (!fs::exists(real / "manifest.json", code)) return newest_in(path);
  return Error{ErrorKind::invalid,
               fmt::format("{} is a step whose directory was renamed: rename it to step- and the "
                           "step's 20 digits, as in its manifest.json",
                           one_line(path))};
}

}  // namespace

std::string StepPlace::path() const { return step_path(dir, step); }

std::string default_checkpoint_dir() {
  const char* dir = std::getenv("BELLOWS_CHECKPOINT_DIR");
  return dir && *dir ? dir : "bellows-checkpoints";
}

Result<std::string> find_checkpoint_dir(const std::string& dir) {
  const std::string path = dir.empty() ? default_checkpoint_dir() : dir;
  if (is_directory(path)) return path;
  return Error{ErrorKind::not_found,
               fmt::format("there is no checkpoint directory {}: name another one, or set "
                           "BELLOWS_CHECKPOINT_DIR",
                           one_line(path))};
}

Result<StepPlace> find_step(const std::string& given_dir, const std::string& text) {
  const bool path_only = text.find('/') != text.npos;
  if (path_only && is_directory(text)) return step_at(text);
  auto dir = find_checkpoint_dir(given_dir);
  if (dir && (text.empty() || text == "latest")) return newest_in(*dir);
  if (dir && !path_only) {
    if (auto step = parse_uint(text)) return step_in(*dir, *step);
    if (auto step = parse_step_name(text)) return step_in(*dir, *step);
    auto names = read_step_names(*dir);
    if (!names) return names.error();
    if (auto named = names->find(text); named != names->end()) return step_in(*dir, named->second);
  }
  if (is_directory(text)) return step_at(text);
  if (!dir) return dir.error();
  return Error{
      ErrorKind::not_found,
      fmt::format("\"{}\" is not a step, nor the name of a step in {}, nor a directory: see "
                  "'bellows ckpt list'",
                  one_line(text), one_line(*dir))};
}

}  // namespace bellows
