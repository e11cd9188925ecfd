// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/disk_link.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <csignal>

#include "modelstore/daemon/helper_process.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kStartPause{1};
constexpr std::chrono::milliseconds kReap{100};
/// To look a digest up. Whoever waits for the model reads it from its source then.
constexpr std::chrono::seconds kFind{5};

}  // namespace

DiskLease& DiskLease::operator=(DiskLease&& other) noexcept {
  if (this == &other) return *this;
  end();
  link_ = std::exchange(other.link_, nullptr);
  number_ = other.number_;
  return *this;
}

void DiskLease::end() {
  if (link_) std::exchange(link_, nullptr)->release(number_);
}

Status DiskLink::start_process() {
  ChildOptions options;
  options.command = command_;
  auto helper = start_helper(options, "bellows-model-disk");
  if (!helper) return helper.error();
  child_.emplace(std::move(helper->child));
  auto watch = loop_.watch(helper->socket.get(), EPOLLIN, [this](std::uint32_t) { on_message(); });
  if (!watch) return watch.error();
  socket_ = std::move(helper->socket);
  watch_ = std::move(*watch);
  return {};
}

void DiskLink::complain(const std::string& text) {
  if (text == complaint_) return;
  complaint_ = text;
  say_("the disk tier: " + text);
}

bool DiskLink::send(const DiskMessage& message, int passed) {
  if (!socket_) return false;
  if (send_message(socket_.get(), message, passed)) return true;
  // It hangs, or is gone. Not here: the caller may be in the middle of something.
  broken_ = true;
  return false;
}

bool DiskLink::find(const ModelDigest& digest, bool of_source, const std::string& tenant,
                    Answer answer) {
  DiskMessage message;
  message.word = DiskWord::find;
  message.number = next_number_++;
  message.of_source = of_source ? 1 : 0;
  message.digest = digest;
  message.set_text(tenant);
  if (silent_ || !send(message)) return false;
  questions_[message.number] = {std::move(answer), EventLoop::Clock::now() + kFind};
  return true;
}

void DiskLink::damaged(const ModelDigest& digest) {
  DiskMessage message;
  message.word = DiskWord::damaged;
  message.digest = digest;
  (void)send(message);
}

void DiskLink::release(std::uint64_t number) {
  DiskMessage message;
  message.word = DiskWord::release;
  message.number = number;
  (void)send(message);
}

void DiskLink::store(const ToStore& what) {
  DiskMessage message;
  message.word = DiskWord::store;
  message.number = next_number_++;
  message.bytes = what.memory->bytes;
  message.catalogue_at = what.memory->catalogue_at;
  message.catalogue_bytes = what.memory->catalogue_bytes;
  message.load_ms = static_cast<std::uint64_t>(what.load_time.count());
  message.digest = what.memory->digest;
  message.of_source = what.source ? 1 : 0;
  if (what.source) message.source = *what.source;
  message.set_text(what.tenant);
  if (!send(message, what.memory->reader.get())) return;
  storing_ = message.number;
  store_deadline_ = EventLoop::Clock::now() + stall_;
}

void DiskLink::on_message() {
  DiskMessage message;
  plain::Handle passed;
  const auto received = receive_message(socket_.get(), &message, &passed);
  if (!received) {
    const bool gone = received.error().kind == ErrorKind::unavailable;
    return let_go(gone ? "bellows-model-disk has ended" : received.error().text);
  }
  silent_ = false;
  if (*received) take(message, passed);
}

void DiskLink::take(const DiskMessage& message, plain::Handle& passed) {
  const bool of_store = storing_ && message.number == *storing_;
  switch (message.word) {
    case DiskWord::found:
    case DiskWord::none:
      return take_found(message, passed);
    case DiskWord::progress:
      if (of_store) store_deadline_ = EventLoop::Clock::now() + stall_;
      return;
    case DiskWord::failed:
      complain("a model is not stored: " + std::string(message.text_view()));
      if (of_store) storing_.reset();
      return;
    case DiskWord::stored:
      complaint_.clear();
      say_("the disk tier: stored " + std::string(message.text_view()));
      if (of_store) storing_.reset();
      return;
    case DiskWord::held:
      held_.images = message.number;
      held_.used = message.bytes;
      counted_ = true;
      return;
    case DiskWord::notice:
      return complain(std::string(message.text_view()));
    default:
      return let_go("bellows-model-disk said what nobody asked for");
  }
}

void DiskLink::take_found(const DiskMessage& message, plain::Handle& passed) {
  const bool found = message.word == DiskWord::found && passed.get() >= 0;
  DiskLease lease(found ? this : nullptr, message.number);
  const auto question = questions_.find(message.number);
  // Too late: the model is being read from elsewhere, and the lease ends here.
  if (question == questions_.end()) return;
  const Answer answer = std::move(question->second.answer);
  questions_.erase(question);
  if (!found) return answer(std::nullopt);
  answer(FoundImage{Fd(passed.release()), message.digest, std::move(lease)});
}

void DiskLink::let_go(const std::string& why) {
  complain(why);
  watch_.end();
  socket_.reset();
  storing_.reset();
  broken_ = silent_ = counted_ = false;
  start_at_ = EventLoop::Clock::now() + kStartPause;
  if (child_) {
    child_->signal(SIGKILL);
    dying_.push_back(std::move(*child_));
    child_.reset();
  }
  auto questions = std::move(questions_);
  questions_.clear();
  for (auto& [number, question] : questions) question.answer(std::nullopt);
}

void DiskLink::tick(Time now) {
  dying_.remove_if([](Child& child) { return child.poll_exit().has_value(); });
  if (socket_ && (broken_ || (storing_ && now >= store_deadline_)))
    let_go("the disk makes no progress: bellows-model-disk is replaced");
  if (!socket_ && now >= start_at_) {
    start_at_ = now + kStartPause;
    if (auto started = start_process(); !started) complain(started.error().text);
  }
  std::vector<Answer> late;
  for (auto entry = questions_.begin(); entry != questions_.end();) {
    if (entry->second.deadline > now) {
      ++entry;
      continue;
    }
    late.push_back(std::move(entry->second.answer));
    entry = questions_.erase(entry);
  }
  silent_ = silent_ || !late.empty();
  for (const Answer& answer : late) answer(std::nullopt);
}

DiskLink::Time DiskLink::next(Time now) const {
  Time next = !socket_ ? start_at_ : broken_ ? now : Time::max();
  if (storing_) next = std::min(next, store_deadline_);
  if (!dying_.empty()) next = std::min(next, now + kReap);
  for (const auto& [number, question] : questions_) next = std::min(next, question.deadline);
  return next;
}

}  // namespace bellows
