// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/system/file_ops.h"
#include "common/access.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A checkpoint directory, and how far its path is trusted as it is. A value.
struct StorePlace {
  StorePlace() = default;
  /// One that its user has chosen: nothing of it is checked.
  StorePlace(std::string path) : dir(std::move(path)), base(dir) {}  // NOLINT: a path is a place
  StorePlace(std::string path, std::string trusted)
      : dir(std::move(path)), base(std::move(trusted)) {}

  /// Checked where it lies below a directory that the site has chosen; else its user's choice.
  static StorePlace below(const std::string& base, const std::string& path);

  std::string dir;   ///< absolute
  std::string base;  ///< how `dir` begins, up to a component: what comes before it is trusted
};

/// Where a program keeps its checkpoints without a launcher, and who may read them: by the contract
/// of the job that it is in, if there is one. `dir`: without links.
StorePlace place_in_job(const std::string& dir, Access* access);

/// Opens the directory, component by component from its base on, and follows no link there. Each
/// component must belong to this user or to root, and nobody else may write to it, but for those of
/// root's on the way that are sticky: so nobody else can replace what then is opened by its path.
/// denied: names the component, and what to do.
Result<Fd> open_place(const StorePlace& place);

/// Whether open_place would do; well for one that its user has chosen.
Status check_place(const StorePlace& place);

/// The same as open_place, and makes what is missing below the base. The base must be there.
Result<Fd> make_place(const StorePlace& place, Access access);

/// Opens what is above the directory, which must lie below its base, with the same checks.
Result<Fd> open_parent(const StorePlace& place);
/// The same, and makes what is missing.
Result<Fd> make_parent(const StorePlace& place, Access access);

/// make_place, or all of a path that is its user's choice, for those whom `ops` lets read it.
Status make_place(FileOps& ops, const StorePlace& place);

/// denied: users could rename each other's directories there, since the directory is neither root's
/// alone nor sticky. Errors: it can't be looked at.
Status check_shared_base(const std::string& base);

}  // namespace bellows
