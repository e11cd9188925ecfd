// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/fd.h"
#include "common/result.h"

/// How a task enters its container's user namespace, as root (--container-remap-root) or as itself.
namespace bellows::container {

/// Whether any user of the machine at `root` ("" for this one) may make a user namespace, and so
/// have every capability in it. Where the site forbids that, root in a container has none either.
/// Ask on the host: what a container shows as /proc may be the user's.
Result<bool> users_have_namespaces(const std::string& root);

/// The process is in `user` from now on, and what changes owners and users only says that it did:
/// no other user is known there, and package managers insist. No security boundary: calls of other
/// architectures are made, and fail.
///
/// `capable`: it is root there, and has a copy of the mounts around it that is its own, where the
/// kernel lets nothing be unmounted or made writable that was mounted outside `user`, and what
/// keep_for_root() keeps. Otherwise it has no capability and no way to one. `joins`: root of
/// another step may have mounted something, see take_joined_mounts(). Last of all before the
/// program.
Status enter_user_namespace(const Fd& user, bool capable, bool joins, bool no_new_privs);

}  // namespace bellows::container
