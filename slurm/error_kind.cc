// SPDX-License-Identifier: Apache-2.0
#include "slurm/error_kind.h"

#include <slurm/slurm_errno.h>

namespace bellows {
namespace {

/// Where they begin; the first of them has no name from 23.02 on.
constexpr int kSocketErrors = 5000;

}  // namespace

ErrorKind slurm_error_kind(int code) {
  // slurmctld gives its verdicts from 1900 on. What lies below never came from it: the system's
  // errors, none at all when the connection was closed, and the general ones of the communication.
  if (code >= 0 && code < SLURM_NO_CHANGE_IN_DATA) return ErrorKind::unavailable;
  // Those of sockets and of authentication: a munged that restarts is not a verdict either.
  if (code >= kSocketErrors && code < ESLURM_DB_CONNECTION) return ErrorKind::unavailable;
  switch (code) {
    case ESLURM_IN_STANDBY_MODE:
    case ESLURM_IN_STANDBY_USE_BACKUP:
      return ErrorKind::unavailable;
    case ESLURM_INVALID_JOB_ID:
      return ErrorKind::not_found;
    case ESLURM_ACCESS_DENIED:
    case ESLURM_USER_ID_MISSING:
    case ESLURM_DISABLED:
      return ErrorKind::denied;
    default:
      return ErrorKind::invalid;
  }
}

}  // namespace bellows
