// SPDX-License-Identifier: Apache-2.0
#include "spank/container/small_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spank/container/mount_api.h"

namespace bellows::container {

Result<SmallTree> SmallTree::create(std::string where) {
  auto tree = new_filesystem("tmpfs", {{"mode", "0755"}, {"size", "1m"}}, MountFlags{});
  if (!tree) return tree.error();
  return SmallTree(std::move(where), *std::move(tree));
}

Status SmallTree::add_directory(const std::string& name) {
  if (::mkdirat(tree_.get(), name.c_str(), 0755) != 0)
    return errno_error("make", where_ + "/" + name);
  return {};
}

Status SmallTree::add_text(const std::string& name, std::string_view text) {
  Fd file(::openat(tree_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
  if (!file) return errno_error("make", where_ + "/" + name);
  return write_all(file.get(), text, where_ + "/" + name);
}

Status SmallTree::add_link(const std::string& name, const std::string& to) {
  if (::symlinkat(to.c_str(), tree_.get(), name.c_str()) != 0)
    return errno_error("make", where_ + "/" + name);
  return {};
}

Status SmallTree::add_clone(const std::string& name, Fd clone, bool directory) {
  Status status = directory ? add_directory(name) : add_text(name, "");
  if (!status) return status;
  clones_.push_back({name, std::move(clone)});
  return {};
}

Status SmallTree::attach(int target) {
  if (auto status = container::attach(tree_.get(), target, where_); !status) return status;
  // Only now: before Linux 6.15 nothing can be mounted in a tree that is itself detached.
  for (const Clone& clone : clones_) {
    const std::string path = where_ + "/" + clone.name;
    Fd place(::openat(tree_.get(), clone.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!place) return errno_error("open", path);
    auto status = container::attach(clone.mount.get(), place.get(), path);
    if (!status) return status;
  }
  return set_read_only(tree_.get(), where_);
}

}  // namespace bellows::container
