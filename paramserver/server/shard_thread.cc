// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/shard_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <system_error>
#include <tuple>
#include <utility>

namespace bellows::ps {
namespace {

using Clock = std::chrono::steady_clock;
/// As long as it takes to sleep and to be woken.
constexpr std::chrono::microseconds kSpin{50};
/// Members that change ring no bell.
constexpr int kLongestSleepMs = 20;

}  // namespace

void Members::set(std::vector<Joined> joined, std::uint64_t limit) {
  const std::lock_guard lock(mutex_);
  joined_ = std::move(joined);
  limit_ = limit;
  ++generation_;
}

std::pair<std::vector<Joined>, std::uint64_t> Members::get() const {
  const std::lock_guard lock(mutex_);
  return {joined_, limit_};
}

ShardThread::ShardThread(const ControlView& control, std::uint32_t shard, ShardLoop loop,
                         const Members& members, const Fd* cut_bell)
    : control_(control),
      shard_(shard),
      loop_(std::move(loop)),
      members_(members),
      cut_bell_(cut_bell) {}

ShardThread::~ShardThread() {
  ends_ = true;
  if (end_bell_) eventfd_write(end_bell_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Status ShardThread::start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  end_bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {EPOLLIN, {}};
  if (!epoll_ || !end_bell_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end_bell_.get(), &event) < 0)
    return errno_error("make", "what wakes a shard's thread");
  epoll_event edge = {EPOLLIN | EPOLLET, {}};
  if (cut_bell_ && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, cut_bell_->get(), &edge) < 0)
    return errno_error("watch", "what a saver rings");
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Error{ErrorKind::unavailable, std::string("cannot start a thread: ") + error.what()};
  }
  return {};
}

void ShardThread::take_members() {
  const std::uint64_t generation = members_.generation();
  if (generation == generation_) return;
  for (const Joined& joined : joined_)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, joined.bell->get(), nullptr);
  std::tie(joined_, limit_) = members_.get();
  plain_.clear();
  for (const Joined& joined : joined_) {
    plain_.push_back(joined.member);
    // Edges: each write wakes every shard, and nobody needs to read, which a hostile learner
    // could do first.
    epoll_event event = {EPOLLIN | EPOLLET, {}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, joined.bell->get(), &event);
  }
  loop_.tell_slowest(plain_);
  generation_ = generation;
}

void ShardThread::run() {
  auto last = Clock::now();
  while (!ends_) {
    take_members();
    if (loop_.turn(plain_, limit_, generation_) > 0)
      last = Clock::now();
    else if (Clock::now() - last > kSpin)
      sleep();
    else
      __builtin_ia32_pause();
  }
}

void ShardThread::sleep() {
  Half& asleep = control_.shard(shard_).asleep;
  asleep.store(1, std::memory_order_seq_cst);
  // Who published before it could see that is found now.
  epoll_event event;
  if (loop_.turn(plain_, limit_, generation_) == 0)
    epoll_wait(epoll_.get(), &event, 1, kLongestSleepMs);
  asleep.store(0, std::memory_order_relaxed);
}

}  // namespace bellows::ps
