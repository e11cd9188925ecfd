// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "pool/shared/etcd_servers.h"

namespace bellows::pool {

/// A lock of a whole pool, the same that shared.lock() is in Python. At most one holds it among
/// those who ask etcd, as changes that name it do. A holder that was stopped may believe that it
/// holds it: outside etcd, compare tokens, which grow. For one thread at a time, but is_held() and
/// token(). The destructor gives it back.
class FieldLock {
 public:
  using Clock = std::chrono::steady_clock;

  /// `name`: that of the fields; `lock`: its own. Lost when its holder does not answer for `life`,
  /// which is rounded to seconds and at least 2.
  FieldLock(std::string pool, const std::string& name, const std::string& lock,
            std::chrono::seconds life);
  FieldLock(const FieldLock&) = delete;
  FieldLock& operator=(const FieldLock&) = delete;
  ~FieldLock() { release(); }

  /// False: another has held it for as long as that. invalid: it is held by this one.
  FieldResult<bool> acquire(std::chrono::milliseconds wait);
  /// If nobody answers it ends with its lease.
  void release();
  /// Whether it certainly is held at this moment, by this machine's clock.
  bool is_held() const { return Clock::now().time_since_epoch().count() < until_; }
  /// Of the last time that it was held; 0 before.
  std::int64_t token() const { return token_; }
  /// As etcd's gateway has it.
  const std::string& key() const { return key_; }

 private:
  FieldResult<bool> grant();
  FieldResult<bool> try_once();
  void keep();
  Clock::time_point soon() const { return Clock::now() + life_; }

  const std::string key_;
  const std::chrono::seconds life_;
  EtcdServers servers_;
  EtcdServers keepers_servers_;  // of the thread
  std::string lease_;            // "": none
  std::atomic<std::int64_t> token_ = 0;
  std::atomic<Clock::rep> expiry_ = 0;  // of the lease
  std::atomic<Clock::rep> until_ = 0;   // the same while the lock is held
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace bellows::pool
