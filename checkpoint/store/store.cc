// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store/store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/system/file_read.h"
#include "checkpoint/system/retry.h"
#include "common/directory.h"

namespace bellows {

Result<std::vector<std::string>> list_names(const std::string& dir) {
  const Directory stream(opendir(dir.c_str()));
  std::vector<std::string> names;
  if (!stream && errno == ENOENT) return names;
  if (!stream) return errno_error("list", dir);
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) return errno_error("list", dir);
    if (!entry) return names;
    names.emplace_back(entry->d_name);
  }
}

Result<std::vector<std::uint64_t>> list_steps(const std::string& dir) {
  auto names = list_names(dir);
  if (!names) return names.error();
  std::vector<std::uint64_t> steps;
  for (const std::string& name : *names) {
    if (auto step = parse_step_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::shared_ptr<const StepReader>> open_step(const std::string& dir, std::uint64_t step) {
  const std::string path = step_path(dir, step);
  auto manifest = read_manifest(path);
  if (!manifest) return manifest.error();
  if (manifest->step != step) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{}/manifest.json belongs to step {}", path, manifest->step)};
  }
  for (const ShardFile& shard : manifest->shards) {
    auto fd = open_shard(fmt::format("{}/{}", path, shard.file), shard.size);
    if (!fd) return fd.error();
  }
  return StepReader::open(path, *manifest);
}

Result<Manifest> verify_step(const std::string& dir, std::uint64_t step, const Progress& progress) {
  auto reader = open_step(dir, step);
  if (!reader) return reader.error();
  if (auto status = (*reader)->verify(progress); !status) return status.error();
  return (*reader)->manifest();
}

namespace {

// What is known or found to be wrong with a step.
Status try_step(const std::string& dir, std::uint64_t step, const Search& search) {
  for (const SkippedStep& bad : search.bad) {
    if (bad.step == step) return Error{ErrorKind::corrupt, bad.error};
  }
  if (search.whole) {
    auto verified = verify_step(dir, step);
    return verified ? Status() : Status(verified.error());
  }
  auto reader = open_step(dir, step);
  return reader ? Status() : Status(reader.error());
}

}  // namespace

Result<NewestStep> choose_step(const std::vector<std::uint64_t>& steps, const LookAtStep& look) {
  NewestStep out;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const Status status = read_with_patience([&] { return look(*step); });
    if (status) {
      out.step = *step;
      return out;
    }
    const Error& error = status.error();
    if (may_pass(error)) {
      return Error{error.kind, fmt::format("step {} cannot be read at present, and an older step "
                                           "must not take its place; try again: {}",
                                           *step, error.text)};
    }
    out.skipped.push_back({*step, error.text});
  }
  return out;
}

Result<NewestStep> newest_step(const std::string& dir, const Search& search) {
  auto steps = read_with_patience([&] { return list_steps(dir); });
  if (!steps) return steps.error();
  return choose_step(*steps, [&](std::uint64_t step) { return try_step(dir, step, search); });
}

}  // namespace bellows
