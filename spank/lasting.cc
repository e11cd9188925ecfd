// SPDX-License-Identifier: Apache-2.0
#include "spank/lasting.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "common/container/image_reference.h"
#include "common/container/options.h"
#include "common/container/rights.h"
#include "common/directory.h"
#include "common/lasting/lasting.h"
#include "common/lasting/upkeep.h"
#include "common/text.h"
#include "spank/owner.h"

namespace bellows::spank {
namespace {

constexpr std::int64_t kDay = 86400;
constexpr std::chrono::seconds kOneUser{10};
/// The others' turn comes on another day.
constexpr std::chrono::seconds kAllUsers{30};

/// A registry's by its digest: what its tag leads to may be another by now.
Result<std::string> image_text(const lasting::MadeFrom& origin) {
  if (!container::is_in_registry(origin.image)) return origin.image;
  auto reference = container::parse_reference(origin.image);
  if (!reference) return reference.error();
  if (!container::is_digest(origin.identity))
    return Error{ErrorKind::corrupt, "it has no digest of its image"};
  reference->tag.clear();
  reference->digest = origin.identity;
  return reference->text();
}

/// As strictly as at the prompt.
Status take_image(container::Spec& asked, const std::string& text) {
  asked.image.clear();
  return container::apply_option(asked, container::Option::image, text, container::Place{});
}

/// Whom a policy permits tags may go by the tag; that it still stands for the same image is seen
/// once it is there.
Result<container::Spec> by_tag(const Contract& contract, container::Spec changed,
                               const std::string& image) {
  if (auto status = take_image(changed, image); !status.ok()) return status.error();
  return container::effective_spec(&contract, changed);
}

/// A resource: the others leave the work to who has it. Invalid: it has been done today.
Result<Fd> begin_sweep(int top, const std::string& directory) {
  Fd stamp(::openat(top, ".swept", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool first = static_cast<bool>(stamp);
  if (!first) stamp.reset(::openat(top, ".swept", O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!stamp || ::fstat(stamp.get(), &info) != 0) return errno_error("open", directory + "/.swept");
  if ((!first && std::time(nullptr) - info.st_mtim.tv_sec < kDay) ||
      ::flock(stamp.get(), LOCK_EX | LOCK_NB) != 0)
    return Fd();
  if (::futimens(stamp.get(), nullptr) != 0) return errno_error("change", directory + "/.swept");
  return stamp;
}

/// In any order: those who take long must not be before the others each day.
std::vector<container::JobOwner> users_in(Fd top) {
  std::vector<container::JobOwner> users;
  const Directory dir = read_directory(std::move(top));
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
    const auto uid = parse_uint(entry->d_name);
    struct stat info {};
    if (uid && ::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(info.st_mode) && info.st_uid == *uid)
      users.push_back({info.st_uid, info.st_gid});
  }
  std::shuffle(users.begin(), users.end(), std::random_device());
  return users;
}

Status sweep_users(const std::string& directory, container::JobOwner owner, std::int64_t before) {
  const auto done = as_owner(owner, kOneUser, [&]() -> int {
    const auto users = lasting::find_users(directory, owner.uid);
    return users && lasting::remove_older(users->get(), before) ? 0 : 1;
  });
  if (done && *done == 0) return {};
  return Error{
      ErrorKind::unavailable,
      fmt::format("old containers of user {} in {} could not be removed", owner.uid, directory)};
}

}  // namespace

Status sweep_lasting(const std::string& directory, std::uint32_t days) {
  auto top = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!top) return top.error().kind == ErrorKind::not_found ? Status() : Status(top.error());
  if (auto status = check_owner(top->get(), 0, directory); !status.ok()) return status;
  const auto sweep = begin_sweep(top->get(), directory);
  if (!sweep || !*sweep) return sweep ? Status() : Status(sweep.error());
  const std::int64_t before = std::time(nullptr) - days * kDay;
  const auto end = std::chrono::steady_clock::now() + kAllUsers;
  Status first;
  for (const container::JobOwner& owner : users_in(*std::move(top))) {
    if (std::chrono::steady_clock::now() > end) break;
    const Status status = sweep_users(directory, owner, before);
    if (first.ok()) first = status;
  }
  return first;
}

Result<container::Spec> with_lasting(const Contract& contract, const container::Spec& asked,
                                     const container::Spec& spec, const std::string& directory,
                                     uid_t uid, std::string& remark) {
  const auto users = lasting::find_users(directory, uid);
  if (!users) return users.error().kind == ErrorKind::not_found ? Result(spec) : users.error();
  const auto origin = lasting::origin_of(users->get(), spec.name);
  if (!origin) return origin.error();
  if (!*origin) return spec;
  container::Spec changed = asked;
  changed.name = spec.name;
  changed.name_mode = spec.name_mode;
  const auto text = image_text(**origin);
  const Status taken = text ? take_image(changed, *text) : Status(text.error());
  if (!taken.ok())
    return Error{
        taken.error().kind,
        fmt::format("the container {} cannot be used: {}; remove it with bellows container "
                    "remove {}, or use another name",
                    spec.name, taken.error().text, spec.name)};
  if (!asked.image.empty() && asked.image != (*origin)->image && asked.image != changed.image)
    remark = fmt::format("the container {} has the image {}; ignoring --container-image", spec.name,
                         (*origin)->image);
  auto found = container::effective_spec(&contract, changed);
  if (found || !container::is_in_registry((*origin)->image)) return found;
  auto tagged = by_tag(contract, changed, (*origin)->image);
  return tagged ? tagged : found;
}

}  // namespace bellows::spank
