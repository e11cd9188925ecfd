// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// A small tmpfs of files and links of our own and of clones of the host's files, filled where
/// nobody sees it, then put in its place and made read-only. A resource; what isn't attached is
/// gone with it.
///
/// It belongs to the user who makes it: a tmpfs of root's could not be filled with CAP_SYS_ADMIN
/// alone. Read-only is what protects it, and that is a mount's flag, which needs CAP_SYS_ADMIN.
class SmallTree {
 public:
  /// `where` is the path of its place, for messages.
  static Result<SmallTree> create(std::string where);

  /// Names are ours ("gpus/0000:3b:00.0"), and made in order: a directory before what is in it.
  Status add_directory(const std::string& name);
  Status add_text(const std::string& name, std::string_view text);
  Status add_link(const std::string& name, const std::string& to);
  /// A detached mount of a file or a directory.
  Status add_clone(const std::string& name, Fd clone, bool directory);

  /// Once, at the end; `target` is an O_PATH descriptor of a directory.
  Status attach(int target);
  /// Of its root.
  int descriptor() const { return tree_.get(); }

 private:
  struct Clone {
    std::string name;
    Fd mount;
  };

  SmallTree(std::string where, Fd tree) : where_(std::move(where)), tree_(std::move(tree)) {}

  std::string where_;
  Fd tree_;
  std::vector<Clone> clones_;
};

}  // namespace bellows::container
