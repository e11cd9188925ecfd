// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace bellows {

/// daemon                         keeper
/// get                       ->   item key, record [+ descriptor], for each; then end
/// put key, record [+ descr] ->   (no answer) what it had under the key is dropped
/// drop key                  ->   (no answer)
/// sync                      ->   end: all that came before is done
enum class KeeperWord : std::uint32_t { get = 1, put = 2, drop = 3, item = 4, end = 5, sync = 6 };

struct KeeperMessage {
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kMostRecord = 3072;

  std::uint32_t version = kVersion;
  KeeperWord word = KeeperWord::get;
  std::uint64_t key = 0;
  std::uint32_t length = 0;
  std::uint32_t unused = 0;
  char record[kMostRecord] = {};

  bool is_sound(std::size_t size) const {
    return size == sizeof *this && version == kVersion && word >= KeeperWord::get &&
           word <= KeeperWord::sync && length <= kMostRecord;
  }
};

}  // namespace bellows
