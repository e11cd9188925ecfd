// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"
#include "image/unpack/limits.h"

namespace bellows::image {

/// The tree that the layers of an image are put into. Names are the image's, so links in it lead to
/// places in it, and never out of it. A resource.
class Tree {
 public:
  /// Where a name is: what it ends in, in a directory.
  struct Place {
    int directory = -1;  ///< valid until the next call
    std::string name;
    std::string path;  ///< the whole of it, in one form for each
  };

  Tree(Fd root, const Limits& limits) : root_(std::move(root)), limits_(limits) {}

  /// invalid: there is ".." in it, it is too long or too deep, or it is the root. With `make`,
  /// directories that lead to it are made.
  Result<Place> find(std::string_view name, bool make);

  /// The path of a name, without its "." and slashes that mean nothing; "" for the root itself.
  Result<std::string> clean(std::string_view name) const;

  int root() const { return root_.get(); }

  /// With all in it, if it is there.
  Status remove(const Place& place);

  /// Everything in the directory that `stays` does not want; nothing if there is none.
  Status clear(const std::string& path, const std::function<bool(const std::string& path)>& stays);

 private:
  Result<Fd> open_directory(const std::string& path) const;
  Result<Fd> reach(const std::string& path, bool make);
  Status clear_directory(Fd directory, const std::string& path,
                         const std::function<bool(const std::string&)>& stays);

  Fd root_;
  Limits limits_;
  std::string last_;  ///< the directory that was found last
  Fd last_directory_;
};

}  // namespace bellows::image
