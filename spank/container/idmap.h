// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <utility>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// Shows root's files of a detached mount as the caller's own, so that an overlay of it can be
/// written to by a user without rights over root's. Files of others are nobody's. For a squashfs
/// from Linux 6.2 on; `invalid` if the kernel cannot.
Status map_root_to_caller(int mount);

/// Whether a file tree, by its root directory, belongs to the caller, mapped or not.
bool is_callers(int root);

/// A user namespace in which that user is root and nobody else is anybody. It belongs to the
/// caller's user, who has every capability in it, even from outside: root must make it, or the user
/// could enter it.
Result<Fd> root_is(uid_t uid, gid_t gid);

/// The same, in which that user has its own number and is nobody's root.
Result<Fd> only_is(uid_t uid, gid_t gid);

/// A host name, this process's, that root in `user` may change. Needs CAP_SYS_ADMIN.
Result<Fd> host_name_in(const Fd& user);

/// What `make` opens in a process whose user namespace is `user`, which has every capability there
/// and a copy of the caller's mounts: file systems that are mounted so have their owners from
/// `user`. invalid: it opened nothing, or there is no such process; why is not told.
Result<std::pair<Fd, Fd>> opened_in(const Fd& user,
                                    const std::function<Result<std::pair<Fd, Fd>>()>& make);

}  // namespace bellows::container
