// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "common/fd.h"
#include "common/result.h"

/// The mount namespace in which a task of a job is while it builds and enters views.
namespace bellows::container {

/// Needs CAP_SYS_ADMIN and CAP_SYS_CHROOT.
Status join(int ns);

/// What is mounted from now on is seen by this process and its children alone. Needs CAP_SYS_ADMIN.
Status leave_namespace();

Result<Fd> own_namespace();

/// Does `work` in `ns` and comes back; the working directory is then the root.
Status do_in(int ns, const std::function<Status()>& work);

}  // namespace bellows::container
