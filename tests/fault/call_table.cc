// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/call_table.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/fault/trace_support.h"

namespace bellows::fault_test {
namespace {

const KnownCall* find_call(std::uint64_t number) {
  for (const KnownCall& known : kKnownCalls) {
    if (known.number == number) return &known;
  }
  return nullptr;
}

std::string name_of(pid_t thread, int fd) {
  const std::string proc = "/proc/" + std::to_string(thread);
  std::error_code ignored;
  return std::filesystem::read_symlink(
             fd == AT_FDCWD ? proc + "/cwd" : proc + "/fd/" + std::to_string(fd), ignored)
      .string();
}

std::string path_at(const Call& call, int at, int path) {
  std::string name = text_at(call.thread, call.args[path]);
  if (!name.empty() && name[0] == '/') return name;
  const int fd = at < 0 ? AT_FDCWD : static_cast<int>(call.args[at]);
  return name_of(call.thread, fd) + "/" + name;
}

// Without the root, and with the numbers that differ in each run replaced.
std::string normal(const std::string& path, const std::string& root, pid_t process) {
  const std::string pid = std::to_string(process);
  std::string out;
  for (std::size_t i = std::min(root.size() + 1, path.size()); i < path.size();) {
    const auto end = std::find_if(path.begin() + static_cast<std::ptrdiff_t>(i), path.end(),
                                  [](unsigned char c) { return !std::isalnum(c); });
    const std::string word(path.begin() + static_cast<std::ptrdiff_t>(i), end);
    const bool digits =
        std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (word == pid && digits) {
      out += "PID";
    } else if (digits && word.size() == 10) {
      out += "TIME";
    } else if (word.size() == 16) {
      out += "HASH";
    } else {
      out += word;
    }
    i += word.size();
    if (i < path.size()) out += path[i++];
  }
  return out;
}

}  // namespace

std::string call_name(std::uint64_t number) {
  const KnownCall* known = find_call(number);
  return known ? known->name : "call " + std::to_string(number);
}

// Read up to the ends of pages, behind which may be none.
std::string text_at(pid_t thread, std::uint64_t address) {
  std::string out;
  while (out.size() < 4096) {
    char chunk[256];
    const std::size_t want = std::min<std::size_t>(sizeof chunk, 4096 - address % 4096);
    iovec here = {chunk, want}, there = {reinterpret_cast<void*>(address), want};
    const ssize_t got = process_vm_readv(thread, &here, 1, &there, 1, 0);
    if (got <= 0) return out;
    const std::size_t length = strnlen(chunk, static_cast<std::size_t>(got));
    out.append(chunk, length);
    if (length < static_cast<std::size_t>(got)) return out;
    address += static_cast<std::uint64_t>(got);
  }
  return out;
}

std::string bytes_at(pid_t thread, std::uint64_t address, std::size_t bytes) {
  std::string out(bytes, '\0');
  iovec here = {out.data(), bytes}, there = {reinterpret_cast<void*>(address), bytes};
  const ssize_t got = process_vm_readv(thread, &here, 1, &there, 1, 0);
  out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return out;
}

std::optional<FileCall> file_call(const Call& call, const std::string& root) {
  const KnownCall* known = find_call(call.number);
  if (!known || !known->changes_files()) return {};
  if (known->flags >= 0 &&
      (call.args[known->flags] & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) == 0) {
    return {};
  }
  FileCall out{known, "", ""};
  out.path = known->fd >= 0 ? name_of(call.thread, static_cast<int>(call.args[known->fd]))
                            : path_at(call, known->at, known->path);
  if (known->to_path >= 0) out.to = path_at(call, known->to_at, known->to_path);
  if (out.path == root || out.path.starts_with(root + "/")) return out;
  return {};
}

std::optional<std::string> file_change(const Call& call, const std::string& root) {
  const auto file = file_call(call, root);
  if (!file) return {};
  std::string text = std::string(file->known->name) + " " + normal(file->path, root, call.process);
  if (!file->to.empty()) text += " -> " + normal(file->to, root, call.process);
  return text;
}

}  // namespace bellows::fault_test
