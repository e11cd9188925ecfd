// SPDX-License-Identifier: Apache-2.0
// System calls as changes of a disk.
#include <fcntl.h>
#include <linux/fs.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "tests/fault/call_table.h"
#include "tests/fault/power_support.h"

namespace bellows::fault_test {
namespace {

using Kind = Change::Kind;

std::uint64_t position(pid_t thread, std::uint64_t fd) {
  std::ifstream in("/proc/" + std::to_string(thread) + "/fdinfo/" + std::to_string(fd));
  std::string word;
  std::uint64_t at = 0;
  in >> word >> at;
  return at;
}

std::optional<Change> write_of(const Call& call, Change change, std::uint64_t at) {
  change.kind = Kind::write;
  change.at = at;
  change.data = bytes_at(call.thread, call.args[1], call.args[2]);
  if (change.data.size() == call.args[2]) return change;
  std::fprintf(stderr, "cannot read what is written to %s\n", change.path.c_str());
  abort();
}

std::optional<Change> resize_of(Change change, std::uint64_t size, bool grows) {
  change.kind = Kind::resize;
  change.at = size;
  change.grows = grows;
  return change;
}

std::optional<Change> open_of(Change change, std::uint64_t flags) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0) return {};
  change.kind = Kind::create;
  change.empties = (flags & O_TRUNC) != 0;
  return change;
}

std::optional<Change> of_kind(Change change, Kind kind) {
  change.kind = kind;
  return change;
}

}  // namespace

std::optional<Change> change_of(const Call& call, const std::string& root) {
  const auto file = file_call(call, root);
  if (!file) return {};
  Change change;
  change.path = file->path;
  change.to = file->to;
  const std::string_view name = file->known->name;
  if (name == "openat" || name == "open") return open_of(change, call.args[file->known->flags]);
  if (name == "write") return write_of(call, change, position(call.thread, call.args[0]));
  if (name == "pwrite64") return write_of(call, change, call.args[3]);
  if (name == "ftruncate") return resize_of(change, call.args[1], false);
  if (name == "fallocate" && call.args[1] == 0) {
    return resize_of(change, call.args[2] + call.args[3], true);
  }
  if (name == "fsync" || name == "fdatasync") return change;
  if (name == "fchmod" || name == "sync_file_range") return {};
  if (name.starts_with("mkdir")) return of_kind(change, Kind::make_directory);
  if (name.starts_with("unlink") || name == "rmdir") return of_kind(change, Kind::remove);
  if (name.starts_with("symlink")) {
    change.to = text_at(call.thread, call.args[0]);
    return of_kind(change, Kind::link);
  }
  if (name == "renameat2" && (call.args[4] & RENAME_EXCHANGE) != 0) {
    return of_kind(change, Kind::exchange);
  }
  if (name.starts_with("rename")) return of_kind(change, Kind::rename);
  std::fprintf(stderr, "a call that the model of a disk doesn't know: %s %s\n", file->known->name,
               file->path.c_str());
  abort();
}

}  // namespace bellows::fault_test
