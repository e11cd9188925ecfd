// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store/retention.h"

#include <fmt/core.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostName = 128;
constexpr std::string_view kAlphanumeric =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

std::string names_path(const std::string& dir) { return dir + "/named"; }

Status check_name(const std::string& name) {
  if (is_step_name(name)) return {};
  return Error{ErrorKind::invalid,
               fmt::format("\"{:.64}\" can't be a step's name: use at most {} letters, digits and "
                           "._+-, beginning with a letter or digit, not a number, \"latest\" or "
                           "\"step-...\"",
                           name, kMostName)};
}

/// The last component of a link's target; nothing for what is not a link.
std::string target_name(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t bytes = readlink(path.c_str(), target, sizeof target);
  if (bytes <= 0 || bytes == static_cast<ssize_t>(sizeof target)) return {};
  std::string text(target, static_cast<std::size_t>(bytes));
  while (text.ends_with('/')) text.pop_back();
  return text.substr(text.rfind('/') + 1);
}

}  // namespace

std::vector<std::uint64_t> steps_to_remove(const std::vector<std::uint64_t>& steps,
                                           const std::set<std::uint64_t>& bad,
                                           const std::set<std::uint64_t>& named,
                                           const Retention& retention) {
  std::vector<std::uint64_t> out;
  std::uint32_t wanted = std::max(retention.keep, 1u);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const bool good = !bad.contains(*step);
    if (wanted > 0) {
      if (good) --wanted;
      continue;
    }
    const bool nth = good && retention.keep_every > 0 && *step % retention.keep_every == 0;
    if (!nth && !named.contains(*step)) out.push_back(*step);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool is_step_name(std::string_view name) {
  if (name.empty() || name.size() > kMostName || name == "latest") return false;
  if (name.starts_with("step-") || name.find_first_not_of("0123456789") == name.npos) return false;
  return kAlphanumeric.find(name[0]) != kAlphanumeric.npos &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return kAlphanumeric.find(c) != kAlphanumeric.npos ||
                  std::string_view("._+-").find(c) != std::string_view::npos;
         });
}

Result<StepNames> read_step_names(const std::string& dir) {
  const std::string path = names_path(dir);
  struct stat s;
  StepNames out;
  if (stat(path.c_str(), &s) < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return out;
    return errno_error("look for names in", path);
  }
  if (!S_ISDIR(s.st_mode)) return out;
  auto names = list_names(path);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    if (auto step = parse_step_name(target_name(path + "/" + name))) out.emplace(name, *step);
  }
  return out;
}

Result<std::set<std::uint64_t>> named_steps(const std::string& dir) {
  auto names = read_step_names(dir);
  if (!names) return names.error();
  std::set<std::uint64_t> steps;
  for (const auto& [name, step] : *names) steps.insert(step);
  return steps;
}

Status add_step_name(FileOps& ops, const std::string& dir, const std::string& name,
                     std::uint64_t step) {
  if (auto status = check_name(name); !status) return status;
  struct stat s;
  if (lstat(step_path(dir, step).c_str(), &s) < 0) return errno_error("find", step_path(dir, step));
  const std::string names = names_path(dir);
  // The dot makes it no name yet.
  const std::string link = names + "/.tmp-" + name;
  auto status = ops.make_directory(names);
  if (status) status = ops.sync_directory(dir);
  if (status) status = ops.remove_file(link);
  if (status) status = ops.make_symlink(fmt::format("../step-{:020}", step), link);
  if (status) status = ops.rename(link, names + "/" + name);
  return status ? ops.sync_directory(names) : status;
}

Status remove_step_name(FileOps& ops, const std::string& dir, const std::string& name) {
  auto names = read_step_names(dir);
  if (!names) return names.error();
  if (!names->contains(name)) {
    return Error{ErrorKind::not_found, fmt::format("no step in {} has the name {:.64}", dir, name)};
  }
  auto status = ops.remove_file(names_path(dir) + "/" + name);
  return status ? ops.sync_directory(names_path(dir)) : status;
}

}  // namespace bellows
