// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/peer_connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Less than kLeast in kWindow is too slow.
constexpr seconds kWindow{10};
constexpr std::uint64_t kLeast = 10 << 20;

struct FreeAddresses {
  void operator()(addrinfo* all) const { freeaddrinfo(all); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  return Addresses(found);
}

/// A directory service may hang: it is left alone with the question then.
Addresses look_up_until(const PeerNode& node, Clock::time_point deadline) {
  if (auto numeric = look_up(node.host, node.port, AI_NUMERICHOST | AI_NUMERICSERV)) return numeric;
  auto promise = std::make_shared<std::promise<Addresses>>();
  auto found = promise->get_future();
  try {
    std::thread([promise, node] {
      promise->set_value(look_up(node.host, node.port, AI_NUMERICSERV));
    }).detach();
  } catch (const std::system_error&) {
    return {};
  }
  if (found.wait_until(deadline) != std::future_status::ready) return {};
  return found.get();
}

int ms_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

bool PeerConnection::wait(short events, Time deadline) const {
  pollfd p = {socket_.get(), events, 0};
  int ready;
  do {
    ready = poll(&p, 1, ms_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

Result<PeerConnection> PeerConnection::open(const PeerNode& node, Time deadline) {
  const Addresses addresses = look_up_until(node, deadline);
  if (!addresses) return Error{ErrorKind::unavailable, node.host + " has no address"};
  int failure = ETIMEDOUT;
  for (const addrinfo* each = addresses.get(); each; each = each->ai_next) {
    PeerConnection connection(
        Fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!connection.socket_) continue;
    if (connect(connection.socket_.get(), each->ai_addr, each->ai_addrlen) == 0) return connection;
    failure = errno;
    if (failure != EINPROGRESS) continue;
    failure = ETIMEDOUT;
    if (!connection.wait(POLLOUT, deadline)) continue;
    socklen_t length = sizeof failure;
    getsockopt(connection.socket_.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure == 0) return connection;
  }
  return Error{ErrorKind::unavailable, fmt::format("cannot connect to {} port {}: {}", node.host,
                                                   node.port, std::strerror(failure))};
}

Status PeerConnection::send(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    const bool waits = sent < 0 && (errno == EAGAIN || errno == EINTR);
    if ((sent < 0 && !waits) || (waits && !wait(POLLOUT, deadline)))
      return Error{ErrorKind::unavailable, "it takes no question"};
  }
  return {};
}

Result<PeerLetter> PeerConnection::receive(Time deadline) {
  for (;;) {
    // Who sends without an end is late, too.
    if (Clock::now() > deadline) return Error{ErrorKind::unavailable, "it does not answer"};
    auto letter = take_frame(in_);
    if (!letter) return letter.error();
    if (*letter) return std::move(**letter);
    char bytes[4096];
    if (!wait(POLLIN, deadline)) return Error{ErrorKind::unavailable, "it does not answer"};
    const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
      return Error{ErrorKind::unavailable, "it closed the connection"};
    if (got > 0) in_.append(bytes, static_cast<std::size_t>(got));
  }
}

Result<std::size_t> PeerConnection::read_some(unsigned char* to, std::uint64_t most,
                                              Time deadline) {
  if (!in_.empty()) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(most, in_.size()));
    std::memcpy(to, in_.data(), bytes);
    in_.erase(0, bytes);
    return bytes;
  }
  for (;;) {
    const ssize_t got = recv(socket_.get(), to, most, 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Error{ErrorKind::io, "it closed the connection before all had come"};
    if (errno != EAGAIN && errno != EINTR)
      return Error{ErrorKind::io, fmt::format("reading from it failed: {}", std::strerror(errno))};
    if (!wait(POLLIN, deadline)) return Error{ErrorKind::io, "it sends less than 1 MiB a second"};
  }
}

namespace {

/// The last answer to a question that was sent, from which `began` counts.
Result<PeerAnswer> await_answer(PeerConnection& connection, const PeerQuestion& question,
                                const PeerCall& call, Clock::time_point began) {
  auto deadline = Clock::now() + call.first;
  std::optional<std::uint64_t> far;
  for (;;) {
    auto letter = connection.receive(deadline);
    if (!letter)
      return Error{far ? ErrorKind::busy : letter.error().kind, std::move(letter.error().text)};
    if (letter->kind == PeerFrame::answer) {
      auto answer = open_peer_answer(call.munge, letter->text, question);
      if (!answer || answer->word != PeerWord::wait) return answer;
    }
    const bool waits = letter->kind == PeerFrame::answer;
    // Anybody can send what is not sealed, so it counts only behind a word that is.
    if (waits ? far.has_value() : letter->kind != PeerFrame::wait || !far)
      return Error{ErrorKind::denied, "it says what nobody asked for"};
    const std::uint64_t now_far = waits ? 0 : far_of(letter->text);
    if (waits || now_far > far.value_or(0)) {
      far = now_far;
      deadline = std::min(Clock::now() + call.patience, began + call.longest);
      call.progress();
    }
  }
}

}  // namespace

Result<PeerOffer> ask_peer(const PeerNode& node, PeerMode mode, const PeerCall& call) {
  PeerQuestion question = call.question;
  auto number = new_peer_number();
  if (!number) return number.error();
  question.number = std::move(*number);
  question.to = node.name;
  question.mode = mode;
  const auto began = Clock::now();
  const auto deadline = began + call.first;
  auto connection = PeerConnection::open(node, deadline);
  if (!connection) return connection.error();
  auto hello = connection->receive(deadline);
  if (!hello) return hello.error();
  if (hello->kind != PeerFrame::hello)
    return Error{ErrorKind::denied, "it says what nobody asked for"};
  question.challenge = std::move(hello->text);
  const auto sealed = seal(call.munge, question);
  if (!sealed) return sealed.error();
  if (auto sent = connection->send(frame_of(PeerFrame::question, *sealed), deadline); !sent)
    return sent.error();
  auto answer = await_answer(*connection, question, call, began);
  if (!answer) return answer.error();
  return PeerOffer{std::move(*answer), std::move(*connection)};
}

Status PeerStream::read_now(unsigned char* to, std::uint64_t bytes) {
  while (bytes > 0) {
    const auto began = Clock::now();
    auto got = connection_.read_some(to, bytes, began + (kWindow - waited_));
    if (!got) return got.error();
    to += *got;
    bytes -= *got;
    came_ += *got;
    waited_ += Clock::now() - began;
    if (came_ >= kLeast) {
      came_ = 0;
      waited_ = {};
    } else if (waited_ >= kWindow) {
      return Error{ErrorKind::io, "it sends less than 1 MiB a second"};
    }
  }
  return {};
}

Status PeerStream::read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  while (at_ != begin && !failed_) {
    const std::uint64_t before = at_;
    // Whoever has the turn may have failed before it came here.
    const auto limit = kWindow + seconds(1);
    if (moved_.wait_for(lock, limit) == std::cv_status::timeout && at_ == before) failed_ = true;
  }
  // All say the same, since the first that does is believed.
  if (failed_) return Error{ErrorKind::io, why_};
  const Status status = read_now(to, bytes);
  failed_ = !status;
  if (failed_) why_ = status.error().text;
  at_ += bytes;
  moved_.notify_all();
  return status;
}

}  // namespace bellows
