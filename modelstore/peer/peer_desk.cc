// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peer/peer_desk.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "modelstore/peerwire/peer_nodes.h"

namespace bellows {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// All together, of one tenant, and of those who have not said who they are.
constexpr std::size_t kMostCallers = 768;
constexpr std::size_t kMostOfTenant = 256;
constexpr std::size_t kMostStrangers = 256;
/// Who get one model at a time.
constexpr std::size_t kAtOnce = 4;
constexpr seconds kQuestion{2};
/// The daemon answers within microseconds, unless it is stopped.
constexpr seconds kDaemon{5};
/// No caller waits as long.
constexpr seconds kLongest{3600};
constexpr std::uint64_t kLeast = 1 << 20;
/// To one caller, before it is another one's turn.
constexpr std::uint64_t kTurn = 1 << 20;
constexpr milliseconds kTell{200};
constexpr seconds kComplain{10};

std::string address_of(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr,
                  0, NI_NUMERICHOST) != 0)
    return "somewhere";
  return host;
}

bool would_block() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

void PeerDesk::complain(const std::string& text) {
  // Programs of jobs can bring it about.
  if (now() < complain_at_) return;
  complain_at_ = now() + kComplain;
  PeerMessage message;
  message.op = PeerOp::notice;
  message.set_text(text);
  tell(message);
}

void PeerDesk::drop_oldest_stranger() {
  const auto is_stranger = [](const Caller& c) { return c.state == State::reading; };
  if (std::count_if(callers_.begin(), callers_.end(), is_stranger) <
      static_cast<std::ptrdiff_t>(kMostStrangers))
    return;
  // They stand in the order in which they came.
  const auto oldest = std::find_if(callers_.begin(), callers_.end(), is_stranger);
  if (oldest != callers_.end()) let_go(oldest);
}

void PeerDesk::accept_caller() {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  Fd socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length,
                    SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  drop_oldest_stranger();
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  Caller caller;
  caller.socket = std::move(socket);
  caller.address = address_of(address, length);
  auto challenge = new_peer_number();
  if (!challenge) return complain(challenge.error().text);
  caller.challenge = std::move(*challenge);
  caller.out = frame_of(PeerFrame::hello, caller.challenge);
  caller.deadline = now() + kQuestion;
  callers_.push_back(std::move(caller));
}

bool PeerDesk::is_full(const std::string& tenant) const {
  return std::count_if(callers_.begin(), callers_.end(), [&](const Caller& c) {
           return c.order && c.question.tenant == tenant;
         }) >= static_cast<std::ptrdiff_t>(kMostOfTenant);
}

bool PeerDesk::serve(Caller& caller, short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    char bytes[4096];
    const ssize_t got = recv(caller.socket.get(), bytes, sizeof bytes, 0);
    if (got == 0 || (got < 0 && !would_block())) return false;
    if (got > 0) caller.in.append(bytes, static_cast<std::size_t>(got));
    if (!take(caller)) return false;
  }
  return (events & POLLOUT) == 0 || send_more(caller);
}

bool PeerDesk::take(Caller& caller) {
  const auto letter = take_frame(caller.in);
  // Nobody says two things before it has got an answer.
  if (!letter || (*letter && !caller.in.empty())) return false;
  if (!*letter) return true;
  if ((*letter)->kind == PeerFrame::question && caller.state == State::reading)
    return take_question(caller, (*letter)->text);
  if ((*letter)->kind == PeerFrame::got && caller.state == State::checking) return take_got(caller);
  return false;
}

bool PeerDesk::take_question(Caller& caller, const std::string& sealed) {
  auto question = open_peer_question(munge_, sealed, self_, caller.challenge);
  if (!question) {
    complain(fmt::format("a question from {} is not answered: {}", caller.address,
                         question.error().text));
    return false;
  }
  caller.question = std::move(*question);
  if (is_full(caller.question.tenant)) {
    answer(caller, PeerWord::none, "too many ask for models of this tenant");
    return true;
  }
  const auto better = is_better_home(caller.question.source, self_, caller.question.from);
  if (!better) return false;
  // Else two nodes could wait for each other.
  if (caller.question.mode == PeerMode::load && !*better) caller.question.mode = PeerMode::have;
  caller.order = order_for(caller.question);
  caller.state = State::waiting;
  caller.deadline = now() + kLongest;
  start_sending(caller.order);
  return true;
}

PeerDesk::Order* PeerDesk::order_for(const PeerQuestion& question) {
  const Key key{question.mode, question.tenant, question.model, question.source, question.digest};
  for (Order& order : orders_)
    if (!order.refused && order.key == key) return &order;
  Order& order = orders_.emplace_back();
  order.key = key;
  order.number = next_order_++;
  order.asked = now();
  PeerMessage message;
  message.op = PeerOp::ask;
  message.number = order.number;
  message.set_text(text_of(question));
  tell(message);
  return &order;
}

void PeerDesk::answer(Caller& caller, PeerWord word, const std::string& text) {
  PeerAnswer answer;
  if (word == PeerWord::have) answer = *caller.order->lent;
  answer.word = word;
  answer.text = text;
  // Without an answer it ends too, and the caller goes another way.
  const bool gives = say_sealed(caller, std::move(answer)) && word == PeerWord::have;
  caller.state = gives ? State::sending : State::ending;
  caller.deadline = now() + (gives ? slow_ : milliseconds(kQuestion));
}

bool PeerDesk::say_sealed(Caller& caller, PeerAnswer answer) {
  answer.number = caller.question.number;
  const auto sealed = seal(munge_, answer);
  if (sealed)
    caller.out += frame_of(PeerFrame::answer, *sealed);
  else
    complain(sealed.error().text);
  return sealed.ok();
}

void PeerDesk::tell_to_wait(Caller& caller) {
  if (!caller.told_to_wait) {
    PeerAnswer answer;
    answer.word = PeerWord::wait;
    caller.told_to_wait = say_sealed(caller, std::move(answer));
    if (!caller.told_to_wait) return;
  }
  // What others get is progress for those who wait for them.
  caller.out += wait_frame(caller.order->far + caller.order->sent);
}

std::size_t PeerDesk::getting(const Order* order) const {
  return static_cast<std::size_t>(std::count_if(
      callers_.begin(), callers_.end(),
      [order](const Caller& c) { return c.order == order && c.state == State::sending; }));
}

std::vector<PeerDesk::Caller*> PeerDesk::waiting_for(const Order* order) {
  std::vector<Caller*> waiting;
  for (Caller& caller : callers_)
    if (caller.order == order && caller.state == State::waiting) waiting.push_back(&caller);
  return waiting;
}

void PeerDesk::start_sending(Order* order) {
  if (!order->lent) return;
  const auto waiting = waiting_for(order);
  const std::size_t busy = getting(order);
  for (std::size_t i = 0; i < waiting.size() && busy + i < kAtOnce; ++i)
    answer(*waiting[i], PeerWord::have, "");
}

void PeerDesk::share(Order* order, const std::string& node) {
  const auto waiting = waiting_for(order);
  const std::size_t part = (waiting.size() + kAtOnce) / (kAtOnce + 1);
  for (std::size_t i = 0; i < part; ++i)
    if (waiting[i]->question.from != node) answer(*waiting[i], PeerWord::other, node);
}

bool PeerDesk::take_got(Caller& caller) {
  share(caller.order, caller.question.from);
  return false;
}

bool PeerDesk::send_more(Caller& caller) {
  while (!caller.out.empty()) {
    const ssize_t sent =
        send(caller.socket.get(), caller.out.data(), caller.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return would_block();
    caller.out.erase(0, static_cast<std::size_t>(sent));
  }
  if (caller.state == State::ending) return false;
  if (caller.state != State::sending) return true;
  const std::uint64_t left = caller.order->lent->bytes - caller.sent;
  const ssize_t sent = send(caller.socket.get(), caller.order->memory->data() + caller.sent,
                            std::min(left, kTurn), MSG_NOSIGNAL);
  if (sent < 0) return would_block();
  caller.sent += static_cast<std::uint64_t>(sent);
  caller.order->sent += static_cast<std::uint64_t>(sent);
  if (caller.sent - caller.sent_before >= kLeast) {
    caller.sent_before = caller.sent;
    caller.deadline = now() + slow_;
  }
  if (caller.sent < caller.order->lent->bytes) return true;
  caller.state = State::checking;
  caller.deadline = now() + slow_;
  start_sending(caller.order);
  return true;
}

void PeerDesk::let_go(Callers::iterator caller) {
  Order* const order = caller->order;
  callers_.erase(caller);
  if (!order) return;
  const bool wanted = std::any_of(callers_.begin(), callers_.end(),
                                  [order](const Caller& c) { return c.order == order; });
  wanted ? start_sending(order) : end_order(order);
}

void PeerDesk::end_order(Order* order) {
  PeerMessage message;
  message.op = PeerOp::done;
  message.number = order->number;
  // Its mapping is gone when the daemon hears of it.
  orders_.remove_if([&](const Order& each) { return &each == order; });
  tell(message);
}

PeerDesk::Order* PeerDesk::find_order(std::uint64_t number) {
  for (Order& order : orders_)
    if (order.number == number) return &order;
  return nullptr;
}

void PeerDesk::refuse_all(Order* order, const std::string& why) {
  // Each is let go once it has its answer, and the last one ends the order.
  order->refused = true;
  for (Caller* caller : waiting_for(order)) answer(*caller, PeerWord::none, why);
}

void PeerDesk::take_lent(Order* order, const PeerMessage& message, plain::Handle& passed) {
  if (order->lent || order->refused) return;
  auto memory = LentMemory::map(passed.get(), message.bytes);
  if (!memory) return refuse_all(order, memory.error().text);
  PeerAnswer lent;
  lent.digest = message.digest;
  lent.bytes = message.bytes;
  lent.catalogue_at = message.catalogue_at;
  lent.catalogue_bytes = message.catalogue_bytes;
  order->lent = lent;
  order->memory.emplace(std::move(*memory));
  start_sending(order);
}

void PeerDesk::take(const PeerMessage& message, plain::Handle& passed) {
  Order* const order = find_order(message.number);
  // Nobody waits for it any more.
  if (!order) return;
  if (message.op == PeerOp::lent) return take_lent(order, message, passed);
  if (message.op == PeerOp::none) return refuse_all(order, std::string(message.text_view()));
  if (message.op != PeerOp::progress) return;
  if (!order->on_its_way) tell_at_ = {};
  order->on_its_way = true;
  order->far = std::max(order->far, message.bytes);
}

bool PeerDesk::take_from_daemon() {
  for (;;) {
    PeerMessage message;
    plain::Handle passed;
    const auto received = receive_message(daemon_, &message, &passed);
    if (!received) return false;
    if (!*received) return true;
    take(message, passed);
  }
}

void PeerDesk::tell_all() {
  while (!to_tell_.empty() && send_message(daemon_, to_tell_.front())) to_tell_.pop_front();
}

void PeerDesk::tell_progress() {
  for (Caller& caller : callers_) {
    if (caller.state != State::waiting || !caller.out.empty()) continue;
    if (caller.order->on_its_way || caller.order->lent) tell_to_wait(caller);
  }
  // A daemon that is stopped is not asked again and again.
  if (!to_tell_.empty()) return;
  for (const Order& order : orders_) {
    if (order.lent || order.refused || !order.on_its_way) continue;
    PeerMessage message;
    message.op = PeerOp::how_far;
    message.number = order.number;
    tell(message);
  }
}

void PeerDesk::tick(Time now) {
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    const auto here = caller++;
    const bool is_unanswered = here->order && here->state == State::waiting && !here->order->lent &&
                               !here->order->on_its_way && here->order->asked + kDaemon <= now;
    if (here->deadline <= now || is_unanswered) let_go(here);
  }
  if (now < tell_at_) return;
  tell_at_ = now + kTell;
  tell_progress();
}

std::vector<pollfd> PeerDesk::descriptors() const {
  std::vector<pollfd> fds;
  fds.push_back({daemon_, static_cast<short>(to_tell_.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  // A full house looks again when somebody leaves.
  fds.push_back({callers_.size() < kMostCallers ? listener_.get() : -1, POLLIN, 0});
  for (const Caller& caller : callers_) {
    const bool writes =
        !caller.out.empty() || caller.state == State::sending || caller.state == State::ending;
    fds.push_back({caller.socket.get(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
  return fds;
}

void PeerDesk::run() {
  for (;;) {
    tick(now());
    tell_all();
    std::vector<pollfd> fds = descriptors();
    (void)poll(fds.data(), fds.size(), static_cast<int>(kTell.count()));
    if (fds[0].revents != 0 && !take_from_daemon()) return;
    std::size_t at = 2;
    // Those who are new stand behind; who is let go by another's doing keeps its place till then.
    for (auto caller = callers_.begin(); caller != callers_.end() && at < fds.size();) {
      const auto here = caller++;
      const pollfd& seen = fds[at++];
      if (seen.revents != 0 && !serve(*here, seen.revents)) let_go(here);
    }
    if (fds[1].revents != 0) accept_caller();
  }
}

}  // namespace bellows
