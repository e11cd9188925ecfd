// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/child.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A process of bellows-modeld's that has the other end of a SOCK_SEQPACKET socket as its standard
/// input.
struct HelperProcess {
  Child child;
  Fd socket;
  /// While this end is open here, a message to a process that has ended already is no error; once
  /// it is closed, `socket` says that it has.
  Fd theirs;
};

/// `name`: of the process, for an error. `options.in_fd` is set here.
Result<HelperProcess> start_helper(ChildOptions options, const char* name);

}  // namespace bellows
