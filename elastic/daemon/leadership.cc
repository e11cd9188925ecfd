// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/leadership.h"

#include <fcntl.h>

#include <cerrno>

namespace bellows {

Result<bool> Leadership::held() {
  if (held_) return true;
  if (!file_) {
    auto opened = open_file(path_, O_RDWR | O_CREAT, 0600);
    if (!opened) return opened.error();
    file_ = *std::move(opened);
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(file_.get(), F_OFD_SETLK, &lock) == 0) held_ = true;
  if (held_ || errno == EAGAIN || errno == EACCES) return held_;
  return errno_error("lock", path_);
}

}  // namespace bellows
