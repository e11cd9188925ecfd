// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/keeper_link.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/listen_at.h"
#include "common/plain/packet.h"

namespace bellows {
namespace {

constexpr timeval kSlowest = {1, 0};
constexpr std::chrono::seconds kPause{1};
constexpr std::chrono::milliseconds kReap{20};
/// What the kernel keeps of a program's name.
constexpr std::size_t kMostComm = 15;

Error keeper_error(int failure) {
  const bool is_absent = failure == ENOENT || failure == ECONNREFUSED;
  return Error{is_absent ? ErrorKind::not_found : ErrorKind::unavailable,
               fmt::format("the keeper of models does not answer: {}", std::strerror(failure))};
}

/// Who listens there, as a pidfd: nothing where that is no keeper, but a daemon whose keeper has
/// never come to listen by itself.
Fd find_keeper(int socket, const std::string& program) {
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0) return {};
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
  const auto name = read_file(fmt::format("/proc/{}/comm", who.pid), 64);
  const std::string wanted = program.substr(program.rfind('/') + 1).substr(0, kMostComm) + "\n";
  return process && name && *name == wanted ? std::move(process) : Fd();
}

bool has_ended(int process) {
  pollfd p = {process, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

}  // namespace

Result<std::vector<KeptItem>> KeeperLink::start(std::function<void()> put_all) {
  put_all_ = std::move(put_all);
  const auto connected = connect();
  // Where one may be there, a new one would leave it with all that it has.
  if (!connected && connected.error().kind != ErrorKind::not_found) return connected.error();
  if (connected) {
    adopted_ = find_keeper(socket_.get(), command_.front());
    auto items = get_all();
    // One that can't say what it has dropped is of no use, and is replaced.
    if (items) when_dropped([] {});
    if (items) return items;
    say_(items.error().text + "; a new one takes its place");
    let_go();
    start_at_ = Time::max();
  }
  if (auto started = start_keeper(); !started) return started.error();
  return std::vector<KeptItem>();
}

Status KeeperLink::connect() {
  plain::Handle socket;
  if (const int failure = plain::connect_to(socket_path_.c_str(), &socket, kSlowest.tv_sec * 1000))
    return keeper_error(failure);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (setsockopt(socket.get(), SOL_SOCKET, option, &kSlowest, sizeof kSlowest) < 0)
      return errno_error("prepare", socket_path_);
  socket_.reset(socket.release());
  auto watch = loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { on_answer(); });
  if (!watch) return watch.error();
  watch_ = std::move(*watch);
  return {};
}

Status KeeperLink::start_keeper() {
  watch_.end();
  socket_.reset();
  kill_keeper();
  started_ = EventLoop::Clock::now();
  const auto listener = listen_at(socket_path_, 0600);
  if (!listener) return listener.error();
  ChildOptions options;
  options.command = command_;
  options.in_fd = listener->get();
  auto child = Child::start(options);
  if (!child) return child.error();
  child_.emplace(std::move(*child));
  return connect();
}

Result<std::vector<KeptItem>> KeeperLink::get_all() {
  KeeperMessage message;
  const iovec part = {&message, sizeof message};
  if (const int failure = plain::send_packet(socket_.get(), &part, 1, -1, 0))
    return keeper_error(failure);
  std::vector<KeptItem> items;
  for (;;) {
    plain::Handle fd;
    std::size_t got = 0;
    if (const int failure = plain::receive_packet(socket_.get(), &part, 1, &got, &fd, 0))
      return keeper_error(failure);
    if (!message.is_sound(got)) return keeper_error(EPROTO);
    if (message.word == KeeperWord::end) return items;
    auto record = parse_kept({message.record, message.length});
    if (record) {
      items.push_back({message.key, std::move(*record), Fd(fd.release())});
    } else {
      say_(record.error().text);
    }
  }
}

/// It never speaks by itself: what nobody asked for is its end.
void KeeperLink::on_answer() {
  KeeperMessage message;
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  const int failure = plain::receive_packet(socket_.get(), &part, 1, &got, nullptr, MSG_DONTWAIT);
  if (failure == EAGAIN) return;
  if (failure != 0 || !message.is_sound(got) || message.word != KeeperWord::end || asked_.empty()) {
    say_("the keeper of models has ended; a new one takes its place");
    return let_go();
  }
  answered_.push_back(std::move(asked_.front()));
  asked_.pop_front();
  answer_by_ = asked_.empty() ? Time::max() : EventLoop::Clock::now() + kPause;
  call_answered();
}

void KeeperLink::call_answered() {
  dying_.remove_if([](Child& child) { return child.poll_exit().has_value(); });
  dying_adopted_.remove_if([](const Fd& process) { return has_ended(process.get()); });
  if (!dying_.empty() || !dying_adopted_.empty()) return;
  for (const Done& done : std::exchange(answered_, {})) done();
}

/// Without waiting: it may hang where no signal reaches it. Not before another takes its place, or
/// has to have nothing of its: a daemon that is started meanwhile finds it.
void KeeperLink::kill_keeper() {
  if (child_) {
    child_->signal(SIGKILL);
    dying_.push_back(std::move(*child_));
    child_.reset();
  }
  if (!adopted_) return;
  (void)syscall(SYS_pidfd_send_signal, adopted_.get(), SIGKILL, nullptr, 0);
  dying_adopted_.push_back(std::move(adopted_));
}

void KeeperLink::let_go() {
  watch_.end();
  socket_.reset();
  if (!asked_.empty()) kill_keeper();
  std::move(asked_.begin(), asked_.end(), std::back_inserter(answered_));
  asked_.clear();
  answer_by_ = Time::max();
  start_at_ = started_ + kPause;
}

KeeperLink::Time KeeperLink::tick(Time now) {
  // It may have answered while this daemon did not look.
  if (answer_by_ <= now) on_answer();
  if (answer_by_ <= now) {
    say_(keeper_error(ETIMEDOUT).text + "; a new one takes its place");
    let_go();
  }
  if (start_at_ <= now) {
    start_at_ = Time::max();
    if (auto started = start_keeper(); !started) {
      say_(started.error().text);
      let_go();
    } else {
      put_all_();
    }
  }
  call_answered();
  const bool waits = !dying_.empty() || !dying_adopted_.empty();
  return std::min({start_at_, answer_by_, waits ? now + kReap : Time::max()});
}

void KeeperLink::put(std::uint64_t key, const KeptRecord& record, int fd) {
  const auto text = text_of(record);
  if (!text) {
    say_("a model's name, path and tenants are too long to be kept over a restart");
    return drop(key);
  }
  KeeperMessage message;
  message.word = KeeperWord::put;
  message.key = key;
  message.length = static_cast<std::uint32_t>(text->size());
  std::memcpy(message.record, text->data(), text->size());
  send(message, fd);
}

void KeeperLink::drop(std::uint64_t key) {
  KeeperMessage message;
  message.word = KeeperWord::drop;
  message.key = key;
  send(message, -1);
}

void KeeperLink::when_dropped(Done done) {
  KeeperMessage message;
  message.word = KeeperWord::sync;
  send(message, -1);
  if (!socket_) {
    kill_keeper();
    return answered_.push_back(std::move(done));
  }
  if (asked_.empty()) answer_by_ = EventLoop::Clock::now() + kPause;
  asked_.push_back(std::move(done));
}

void KeeperLink::send(const KeeperMessage& message, int fd) {
  if (!socket_) return;
  const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
  const int failure = plain::send_packet(socket_.get(), &part, 1, fd, 0);
  if (failure == 0) return;
  // It lacks this now, and to wait for it again and again would stop all. A new one gets all.
  say_(keeper_error(failure).text + "; a new one takes its place");
  let_go();
}

}  // namespace bellows
