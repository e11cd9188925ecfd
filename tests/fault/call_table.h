// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tests/fault/trace_support.h"

// The system calls that the fault tests know, and where their names and descriptors are.
namespace bellows::fault_test {

/// Indices of arguments; -1: it has none. A path that isn't absolute begins at `at`.
struct KnownCall {
  std::uint32_t number;
  const char* name;
  int fd = -1;
  int at = -1;
  int path = -1;
  int to_at = -1;
  int to_path = -1;
  int flags = -1;  ///< of open: without one that writes or creates, it changes nothing

  constexpr bool changes_files() const { return fd >= 0 || path >= 0; }
};

inline constexpr KnownCall kKnownCalls[] = {
    {.number = SYS_openat, .name = "openat", .at = 0, .path = 1, .flags = 2},
    {.number = SYS_mkdirat, .name = "mkdirat", .at = 0, .path = 1},
    {.number = SYS_unlinkat, .name = "unlinkat", .at = 0, .path = 1},
    {.number = SYS_renameat, .name = "renameat", .at = 0, .path = 1, .to_at = 2, .to_path = 3},
    {.number = SYS_renameat2, .name = "renameat2", .at = 0, .path = 1, .to_at = 2, .to_path = 3},
    {.number = SYS_symlinkat, .name = "symlinkat", .at = 1, .path = 2},
    {.number = SYS_linkat, .name = "linkat", .at = 2, .path = 3},
    {.number = SYS_truncate, .name = "truncate", .path = 0},
    {.number = SYS_fchmod, .name = "fchmod", .fd = 0},
    {.number = SYS_ftruncate, .name = "ftruncate", .fd = 0},
    {.number = SYS_fallocate, .name = "fallocate", .fd = 0},
    {.number = SYS_write, .name = "write", .fd = 0},
    {.number = SYS_writev, .name = "writev", .fd = 0},
    {.number = SYS_pwrite64, .name = "pwrite64", .fd = 0},
    {.number = SYS_pwritev, .name = "pwritev", .fd = 0},
    {.number = SYS_pwritev2, .name = "pwritev2", .fd = 0},
    {.number = SYS_copy_file_range, .name = "copy_file_range", .fd = 2},
    {.number = SYS_sendfile, .name = "sendfile", .fd = 0},
    {.number = SYS_fsync, .name = "fsync", .fd = 0},
    {.number = SYS_fdatasync, .name = "fdatasync", .fd = 0},
    {.number = SYS_sync_file_range, .name = "sync_file_range", .fd = 0},
#ifdef SYS_open
    {.number = SYS_open, .name = "open", .path = 0, .flags = 1},
    {.number = SYS_creat, .name = "creat", .path = 0},
    {.number = SYS_mkdir, .name = "mkdir", .path = 0},
    {.number = SYS_rmdir, .name = "rmdir", .path = 0},
    {.number = SYS_unlink, .name = "unlink", .path = 0},
    {.number = SYS_rename, .name = "rename", .path = 0, .to_path = 1},
    {.number = SYS_symlink, .name = "symlink", .path = 1},
    {.number = SYS_link, .name = "link", .path = 1},
#endif
    // What gives memory and descriptors.
    {.number = SYS_memfd_create, .name = "memfd_create"},
    {.number = SYS_mmap, .name = "mmap"},
    {.number = SYS_mremap, .name = "mremap"},
    {.number = SYS_socket, .name = "socket"},
    {.number = SYS_accept4, .name = "accept4"},
    {.number = SYS_eventfd2, .name = "eventfd2"},
    {.number = SYS_pipe2, .name = "pipe2"},
};

/// A call that may change a file, with its paths made absolute.
struct FileCall {
  const KnownCall* known = nullptr;
  std::string path;
  std::string to;
};
/// Nothing for a call that changes no file at or below `root`.
std::optional<FileCall> file_call(const Call& call, const std::string& root);

/// What the traced thread has in its memory.
std::string bytes_at(pid_t thread, std::uint64_t address, std::size_t bytes);
std::string text_at(pid_t thread, std::uint64_t address);

}  // namespace bellows::fault_test
