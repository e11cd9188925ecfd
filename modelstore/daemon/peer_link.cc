// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/peer_link.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/listen_at.h"
#include "modelstore/daemon/helper_process.h"
#include "modelstore/loader/model_place.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kStartPause{1};
constexpr std::chrono::seconds kLongestPause{30};
constexpr std::chrono::milliseconds kReap{100};
constexpr const char* kNotHere = "there is no such model here";

}  // namespace

Status PeerLink::start_process() {
  if (!listener_) {
    auto listener = listen_on(port_);
    if (!listener) return listener.error();
    listener_ = std::move(*listener);
  }
  ChildOptions options;
  options.command = command_;
  options.death_signal = SIGKILL;
  auto helper = start_helper(options, "bellows-model-peer");
  if (!helper) return helper.error();
  PeerMessage message;
  message.op = PeerOp::listen;
  if (auto sent = send_message(helper->socket.get(), message, listener_.get()); !sent) return sent;
  child_.emplace(std::move(helper->child));
  auto watch = loop_.watch(helper->socket.get(), EPOLLIN, [this](std::uint32_t) { on_message(); });
  if (!watch) return watch.error();
  socket_ = std::move(helper->socket);
  watch_ = std::move(*watch);
  return {};
}

void PeerLink::complain(const std::string& text) {
  if (text == complaint_) return;
  complaint_ = text;
  say_("other nodes: " + text);
}

void PeerLink::send(const PeerMessage& message, int passed) {
  // Not here: the caller may be in the middle of something.
  if (socket_ && !send_message(socket_.get(), message, passed)) broken_ = true;
}

void PeerLink::on_message() {
  PeerMessage message;
  const auto received = receive_message(socket_.get(), &message, nullptr);
  if (!received) {
    const bool gone = received.error().kind == ErrorKind::unavailable;
    return let_go(gone ? "bellows-model-peer has ended" : received.error().text);
  }
  if (*received) take(message);
}

void PeerLink::take(const PeerMessage& message) {
  switch (message.op) {
    case PeerOp::ask:
      return ask(message);
    case PeerOp::done:
      return done(message.number);
    case PeerOp::how_far:
      return tell_progress(message.number);
    case PeerOp::notice:
      return complain(std::string(message.text_view()));
    case PeerOp::lent:
    case PeerOp::none:
    case PeerOp::progress:
    case PeerOp::listen:
      break;
  }
  let_go("bellows-model-peer said what nobody asked for");
}

std::map<TicketId, PeerLink::Asked>::iterator PeerLink::find(std::uint64_t number) {
  return std::find_if(asked_.begin(), asked_.end(),
                      [number](const auto& entry) { return entry.second.number == number; });
}

void PeerLink::refuse(std::uint64_t number, const std::string& why) {
  PeerMessage message;
  message.op = PeerOp::none;
  message.number = number;
  message.set_text(why);
  send(message);
}

bool PeerLink::is_asked_for(const PeerQuestion& question, ModelId model,
                            const ModelDigest& digest) const {
  const auto* registered = registry_.get(model);
  if (question.digest) return digest == *question.digest;
  return registered && registered->source == question.source;
}

void PeerLink::ask(const PeerMessage& message) {
  auto question = parse_peer_question(message.text_view());
  const auto tenant = question ? registry_.find_tenant(question->tenant) : std::nullopt;
  const auto model = tenant ? registry_.own(*tenant, question->model) : std::nullopt;
  const auto* registered = model ? registry_.get(*model) : nullptr;
  if (!registered || !registered->configured || !is_remote_place(registered->from.path))
    return refuse(message.number, kNotHere);
  const auto state = tier_.book().state(*model);
  const bool resident = state == ModelBook::State::resident;
  const bool may_wait = question->mode == PeerMode::load ||
                        (question->mode == PeerMode::loading && state != ModelBook::State::absent);
  if (!resident && !may_wait) return refuse(message.number, kNotHere);
  const TicketId ticket = next_ticket_++;
  asked_[ticket] = {message.number, *model, std::move(*question)};
  tier_.open(ticket, *model, *this);
  tell_progress(message.number);
}

void PeerLink::tell_progress(std::uint64_t number) {
  const auto found = find(number);
  if (found == asked_.end() || found->second.granted) return;
  PeerMessage message;
  message.op = PeerOp::progress;
  message.number = number;
  // What is queued, looked for or waits for room reads nothing, and its turn comes all the same.
  const auto progress = tier_.progress(found->first);
  if (!progress || !progress->reads || progress->done != found->second.read) ++found->second.signs;
  if (progress) found->second.read = progress->done;
  message.bytes = found->second.signs;
  send(message);
}

void PeerLink::done(std::uint64_t number) {
  const auto found = find(number);
  if (found == asked_.end()) return;
  const TicketId ticket = found->first;
  asked_.erase(found);
  tier_.close(ticket);
}

void PeerLink::granted(TicketId ticket, const ModelMemory& memory) {
  const auto found = asked_.find(ticket);
  if (found == asked_.end()) return;
  Asked& asked = found->second;
  if (!is_asked_for(asked.question, asked.model, memory.digest)) {
    refuse(asked.number, "it is there in another version");
    asked_.erase(found);
    return tier_.close(ticket);
  }
  asked.granted = true;
  PeerMessage message;
  message.op = PeerOp::lent;
  message.number = asked.number;
  message.bytes = memory.bytes;
  message.catalogue_at = memory.catalogue_at;
  message.catalogue_bytes = memory.catalogue_bytes;
  message.digest = memory.digest;
  send(message, memory.reader.get());
}

void PeerLink::refused(TicketId ticket, const Error& error) {
  const auto found = asked_.find(ticket);
  if (found == asked_.end()) return;
  refuse(found->second.number, error.text);
  asked_.erase(found);
}

void PeerLink::start_later(Time now) {
  start_at_ = now + pause_;
  pause_ = std::min<std::chrono::seconds>(2 * pause_, kLongestPause);
}

void PeerLink::let_go(const std::string& why) {
  const Time now = EventLoop::Clock::now();
  if (now - started_ >= kLongestPause) pause_ = kStartPause;
  // What keeps ending has said why itself.
  if (pause_ == kStartPause) complain(why);
  watch_.end();
  socket_.reset();
  broken_ = false;
  start_later(now);
  if (child_) {
    child_->signal(SIGKILL);
    dying_.push_back(std::move(*child_));
    child_.reset();
  }
  const auto asked = std::exchange(asked_, {});
  for (const auto& [ticket, of] : asked) tier_.close(ticket);
}

void PeerLink::tick(Time now) {
  dying_.remove_if([](Child& child) { return child.poll_exit().has_value(); });
  if (socket_ && broken_) let_go("bellows-model-peer takes nothing: it is replaced");
  if (socket_ || now < start_at_) return;
  started_ = now;
  if (auto started = start_process(); !started) {
    complain(started.error().text);
    start_later(now);
  }
}

PeerLink::Time PeerLink::next(Time now) const {
  const Time next = !socket_ ? start_at_ : broken_ ? now : Time::max();
  return dying_.empty() ? next : std::min(next, now + kReap);
}

}  // namespace bellows
