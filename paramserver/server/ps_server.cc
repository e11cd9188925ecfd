// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/ps_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "common/plain/packet.h"
#include "common/text.h"
#include "paramserver/server/apply_rule.h"

namespace bellows::ps {
namespace {

constexpr std::size_t kMostPeers = 1024;
constexpr std::chrono::milliseconds kSettle{5};
/// For who connects to say that it joins, and the first one to send its weights.
constexpr std::chrono::seconds kToJoin{60};
constexpr std::size_t kMostInfo = 4096;
constexpr std::size_t kMostMaps = 64 << 20;
/// To see who left while there was no server to tell.
constexpr std::chrono::seconds kLook{1};

int send(const Fd& socket, const PsMessage& message, int passed = -1) {
  const iovec part = {const_cast<PsMessage*>(&message), sizeof message};
  return plain::send_packet(socket.get(), &part, 1, passed, MSG_DONTWAIT);
}

PsMessage message_of(PsWord word, const std::string& text = "") {
  PsMessage message;
  message.word = word;
  message.length = static_cast<std::uint32_t>(std::min(text.size(), PsMessage::kMostText));
  std::memcpy(message.text, text.data(), message.length);
  return message;
}

/// invalid: reading it might wait for somebody, as for a file system that a learner serves.
Status check_memory(const Fd& fd) {
  if (fd && fcntl(fd.get(), F_GET_SEALS) >= 0) return {};
  return Error{ErrorKind::invalid, "a learner gave something other than memory"};
}

/// -1: it has ended.
pid_t pid_of(const Fd& process) {
  auto info = read_file(fmt::format("/proc/self/fdinfo/{}", process.get()), kMostInfo);
  if (!info) return -1;
  for (const std::string_view line : split(*info, '\n'))
    if (line.substr(0, 4) == "Pid:")
      if (const auto pid = parse_uint(trim(line.substr(4)))) return static_cast<pid_t>(*pid);
  return -1;
}

/// Whether a process has memory mapped that is in a file, as far as can be seen.
bool has_mapped(pid_t process, const Fd& file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) return true;
  const auto maps = read_file(fmt::format("/proc/{}/maps", process), kMostMaps);
  return !maps || maps->find(fmt::format(" {} ", info.st_ino)) != std::string::npos;
}

bool has_ended(const Fd& process) {
  pollfd ended = {process.get(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

/// The process at the other end. denied: it is another user's.
Result<Fd> process_of(const Fd& socket) {
  ucred who = {};
  socklen_t size = sizeof who;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
    return errno_error("see", "who a learner is");
  if (who.uid != geteuid() && who.uid != 0)
    return Error{ErrorKind::denied, "this parameter server is another user's"};
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
  // The number may be another process's by now, unless this one still holds the socket.
  if (!process || plain::hung_up(socket.get()))
    return Error{ErrorKind::unavailable, "the learner has ended"};
  return process;
}

}  // namespace

PsServer::PsServer(EventLoop& loop, SeatKeeper keeper, const ServerOptions& options, Say say)
    : loop_(loop),
      options_(options),
      say_(std::move(say)),
      keeper_(std::move(keeper)),
      lines_(options.learners) {}

PsServer::~PsServer() {
  saver_.reset();
  threads_.clear();
}

Result<std::unique_ptr<PsServer>> PsServer::make(EventLoop& loop, Fd listener, SeatKeeper keeper,
                                                 const ServerOptions& options, Say say) {
  std::unique_ptr<PsServer> made(new PsServer(loop, std::move(keeper), options, std::move(say)));
  PsServer* const server = made.get();
  if (auto opened = server->to_fence_.open(); !opened) return opened.error();
  auto fences = loop.watch(server->to_fence_.bell().get(), EPOLLIN,
                           [server](std::uint32_t) { server->on_fenced(); });
  if (!fences) return fences.error();
  server->fence_watch_ = std::move(*fences);
  if (options.save)
    if (auto saver = server->start_saver(); !saver) return saver.error();
  auto left = server->keeper_.get();
  if (!left) return left.error();
  if (*left)
    if (auto adopted = server->adopt(std::move(**left)); !adopted) return adopted.error();
  server->listener_ = std::move(listener);
  auto watch = loop.watch(server->listener_.get(), EPOLLIN,
                          [server](std::uint32_t) { server->accept_peer(); });
  if (!watch) return watch.error();
  server->listener_watch_ = std::move(*watch);
  return made;
}

void PsServer::accept_peer() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && errno == EAGAIN) return;
  if (!socket || peers_.size() >= kMostPeers) {
    // Who has said nothing for the longest makes room.
    const auto idle = std::find_if(peers_.begin(), peers_.end(),
                                   [](const auto& entry) { return !entry.second.learner; });
    if (idle != peers_.end()) peers_.erase(idle);
    if (!socket) return;
  }
  const std::uint64_t key = next_peer_++;
  auto watch = loop_.watch(socket.get(), EPOLLIN, [this, key](std::uint32_t) { on_message(key); });
  if (!watch) return say_(watch.error().text);
  Peer& peer = peers_[key];
  peer.socket = std::move(socket);
  peer.watch = std::move(*watch);
  peer.until = EventLoop::Clock::now() + kToJoin;
}

void PsServer::on_message(std::uint64_t key) {
  const auto found = peers_.find(key);
  if (found == peers_.end()) return;
  PsMessage message;
  plain::Handle passed;
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  const int error =
      plain::receive_packet(found->second.socket.get(), &part, 1, &got, &passed, MSG_DONTWAIT);
  if (error == EAGAIN) return;
  // Who leaves says so; this one has ended, become another program, or lost its handle.
  if (error != 0 || !message.is_sound(got)) {
    if (found->second.learner) end(*found->second.learner);
    peers_.erase(found);
    return;
  }
  take(key, found->second, message, Fd(passed.release()));
}

void PsServer::take(std::uint64_t key, Peer& peer, const PsMessage& message, Fd passed) {
  Status done;
  const bool comes = message.word == PsWord::join || message.word == PsWord::initial;
  if (comes && ending_ != Ending::none)
    done = Error{ErrorKind::unavailable, "this parameter server is about to end"};
  else if (message.word == PsWord::join && !peer.learner)
    done = join(peer, message, std::move(passed));
  else if (message.word == PsWord::initial && peer.join)
    done = take_initial(peer, std::move(passed));
  else if (message.word == PsWord::leave && peer.learner) {
    peer.leaves = true;
    end(*peer.learner);
  } else if (message.word == PsWord::report && !peer.learner && !peer.join) {
    PsMessage answer = message_of(PsWord::report);
    answer.report = report();
    send(peer.socket, answer);
  } else {
    done = Error{ErrorKind::invalid, "a learner said what nobody asked for"};
  }
  if (done) return;
  refuse(peer, done.error());
  peers_.erase(key);
}

Status PsServer::join(Peer& peer, const PsMessage& message, Fd counts) {
  if (auto memory = check_memory(counts); !memory) return memory;
  if (memory_) {
    if (auto agreed = agree(message, counts); !agreed) return agreed;
    return seat(peer);
  }
  if (auto sound = check_terms(message.terms); !sound) return sound;
  if (saver_) {
    if (auto made = make_memory(message, counts); !made) return made;
    const auto restored = restore();
    if (restored && *restored) {
      if (auto begun = begin_training(); !begun) return begun;
      return seat(peer);
    }
    memory_.reset();
    if (!restored) return restored.error();
  }
  peer.join = message;
  peer.counts = std::move(counts);
  send(peer.socket, message_of(PsWord::initial));
  return {};
}

Status PsServer::take_initial(Peer& peer, Fd weights) {
  if (auto memory = check_memory(weights); !memory) return memory;
  // Another one may have been first.
  if (memory_) {
    if (auto agreed = agree(*peer.join, peer.counts); !agreed) return agreed;
    return seat(peer);
  }
  if (auto made = make_memory(*peer.join, peer.counts); !made) return made;
  std::uint64_t at = 0;
  for (std::uint32_t s = 0; s < memory_->control().geometry().shards; ++s) {
    const std::uint64_t bytes = memory_->control().shard(s).count * sizeof(float);
    auto* const to = reinterpret_cast<unsigned char*>(memory_->weights().buffer(s, 0));
    if (auto read = read_at(weights.get(), to, bytes, at, "a learner's weights"); !read) {
      memory_.reset();
      return read;
    }
    at += bytes;
  }
  if (auto begun = begin_training(); !begun) return begun;
  return seat(peer);
}

Status PsServer::seat(Peer& peer) {
  auto process = process_of(peer.socket);
  if (!process) return process.error();
  if (auto checked = check_place(*process); !checked) return checked;
  auto made = seats_->make(std::move(*process));
  if (!made && made.error().kind == ErrorKind::busy && is_about_to_end())
    return Error{ErrorKind::unavailable,
                 "a place is free only when what its learner has pushed is applied"};
  if (!made) return made.error();
  const std::uint32_t learner = made->joined.member.who.learner;
  // Before the learner knows of it: a server that ends then leaves a seat whose learner never
  // pushes, and which its end gives back.
  if (auto kept = keeper_.put_seat(*made); !kept) return kept;
  peer.join.reset();
  peer.learner = learner;
  const Seat granted = *made;
  watch_process(learner, granted.process);
  seats_->add(std::move(*made), options_.mode == Mode::synchronous);
  // Only now: it reads weights as soon as it has the memory.
  if (auto done = grant(peer, granted); !done) {
    end(learner);
    return done;
  }
  say(LearnerLines::Kind::join, fmt::format("learner {} joins", learner));
  return {};
}

std::optional<std::uint32_t> PsServer::started_of(const Fd& process) const {
  return options_.started ? options_.started->learner_of(pid_of(process)) : std::nullopt;
}

/// Whether this is the process of a learner in another program, which has lost that seat. While its
/// server lives, the end of its socket says so.
bool PsServer::became_another(std::uint32_t learner, const Fd& process) const {
  const auto seat = seats_->all().find(learner);
  return seat != seats_->all().end() && pid_of(process) == pid_of(*seat->second.process) &&
         std::none_of(peers_.begin(), peers_.end(),
                      [&](const auto& entry) { return entry.second.learner == learner; }) &&
         !has_mapped(pid_of(process), seat->second.joined.slot->file());
}

/// There is a place for each learner, and one that joined again and again would have those of all.
Status PsServer::check_place(const Fd& process) {
  if (!options_.started) return {};
  const auto started = started_of(process);
  std::set<std::uint32_t> here;
  for (const auto& [learner, other] : processes_) {
    if (!other.started || has_ended(*other.fd)) continue;
    here.insert(*other.started);
    if (other.started != started) continue;
    if (became_another(learner, process)) {
      end(learner);
      break;
    }
    return Error{ErrorKind::invalid,
                 fmt::format("it has joined already, or what it has started, as learner {}: each "
                             "learner that bellows-ps starts may join once, and again after it "
                             "has left",
                             learner)};
  }
  if (started) return {};
  std::size_t expected = 0;
  for (std::uint32_t l = 0; l < options_.learners; ++l)
    if (!options_.started->is_done(l) && here.count(l) == 0) ++expected;
  if (seats_->all().size() + expected < options_.learners) return {};
  return Error{
      ErrorKind::busy,
      fmt::format("the places left are for learners that bellows-ps has started, and it is "
                  "none by its environment: pass on {}, {} and SLURM_JOB_ID to it",
                  LearnerRun::kVariable, kLearnerVariable)};
}

/// Whether some learner is.
bool PsServer::is_about_to_end() const {
  const auto& all = seats_->all();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& entry) { return entry.second.joined.member.last.has_value(); });
}

PsReport PsServer::report() const {
  PsReport report;
  if (!seats_) return report;
  report.learners = seats_->all().size();
  const ControlView& control = memory_->control();
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s) {
    const ShardWords& words = control.shard(s);
    report.updates = std::max(report.updates, control.current(s).version);
    report.gradients += words.gradients.load(std::memory_order_relaxed);
    report.staleness += words.staleness.load(std::memory_order_relaxed);
    report.most_staleness =
        std::max(report.most_staleness, words.most_staleness.load(std::memory_order_relaxed));
  }
  return report;
}

Status PsServer::grant(const Peer& peer, const Seat& seat) const {
  const auto read_only = [](const Fd& fd) {
    return open_file(fmt::format("/proc/self/fd/{}", fd.get()), O_RDONLY);
  };
  auto control = read_only(memory_->files().control);
  if (!control) return control.error();
  auto weights = read_only(memory_->files().weights);
  if (!weights) return weights.error();
  PsMessage message = message_of(PsWord::granted);
  const Identity& who = seat.joined.member.who;
  message.geometry = memory_->control().geometry();
  message.learner = who.learner;
  message.incarnation = who.incarnation;
  message.base = who.base;
  message.clock = seats_->clock_of(who);
  if (options_.mode == Mode::bounded) message.lead = options_.staleness;
  const PsMessage more = message_of(PsWord::more);
  if (send(peer.socket, message, control->get()) == 0 &&
      send(peer.socket, more, weights->get()) == 0 &&
      send(peer.socket, more, seat.joined.slot->file().get()) == 0 &&
      send(peer.socket, more, seat.joined.bell->get()) == 0)
    return {};
  return Error{ErrorKind::unavailable, "a learner has ended before it had a seat"};
}

void PsServer::refuse(Peer& peer, const Error& error) {
  say(LearnerLines::Kind::refusal, "refuses a learner: " + error.text);
  PsMessage message = message_of(PsWord::refused, error.text);
  if (error.kind == ErrorKind::busy) message.refusal = PsRefusal::full;
  if (error.kind == ErrorKind::unavailable) message.refusal = PsRefusal::unavailable;
  send(peer.socket, message);
}

void PsServer::watch_process(std::uint32_t learner, std::shared_ptr<const Fd> process) {
  auto watch =
      loop_.watch(process->get(), EPOLLIN, [this, learner](std::uint32_t) { end(learner); });
  if (!watch) return;
  const auto started = started_of(*process);
  processes_[learner] = {std::move(process), std::move(*watch), started};
}

void PsServer::end(std::uint32_t learner) {
  const auto process = processes_.find(learner);
  if (process != processes_.end()) {
    const auto started = process->second.started;
    if (seats_->has_trained(learner) && started) options_.started->note_trained(*started);
    processes_.erase(process);
  }
  if (seats_) seats_->end(learner);
}

void PsServer::on_fenced() {
  std::map<std::uint32_t, std::string> nonsense;
  for (auto& [who, why] : to_fence_.take()) {
    nonsense[who.learner] = std::move(why);
    seats_->fence(who);
  }
  for (const std::uint32_t learner : seats_->take_fenced()) {
    const auto why = nonsense.find(learner);
    let_go(
        learner, LearnerLines::Kind::put_out,
        "is put out: " + (why != nonsense.end() ? why->second
                                                : "what it says that it published makes no sense"));
  }
}

void PsServer::say(LearnerLines::Kind kind, const std::string& text) {
  const std::string line = lines_.line(kind, text, EventLoop::Clock::now());
  if (!line.empty()) say_(line);
}

void PsServer::let_go(std::uint32_t learner, LearnerLines::Kind kind, const std::string& why) {
  processes_.erase(learner);
  (void)keeper_.drop_seat(learner);
  say(kind, fmt::format("learner {} {}", learner, why));
  std::erase_if(peers_, [&](const auto& entry) {
    const Peer& peer = entry.second;
    if (peer.learner != learner) return false;
    send(peer.socket, peer.leaves ? message_of(PsWord::left) : message_of(PsWord::refused, why));
    return true;
  });
}

void PsServer::finish() {
  if (ending_ == Ending::none) ending_ = Ending::finishes;
}

void PsServer::stop() {
  ending_ = Ending::stops;
  end_as(Saver::End::stopped);
}

/// Once all is saved, if there is somebody to save it.
void PsServer::end_as(Saver::End end) {
  if (saver_)
    saver_->finish(end);
  else
    over_ = end;
}

/// Whether there is nothing left to do.
bool PsServer::finish_if_all_are_gone() {
  if (ending_ != Ending::finishes || over_ || (seats_ && !seats_->all().empty()))
    return over_.has_value();
  end_as(Saver::End::finished);
  return over_.has_value();
}

// All shards wait for the same one.
void PsServer::look_at_step(EventLoop::Clock::time_point now) {
  if (options_.mode != Mode::synchronous) return;
  const auto missing = Slowest::of(memory_->control().shard(0).slowest.load());
  const auto stall = step_watch_.look(missing, now);
  if (!stall) return;
  const auto process = processes_.find(stall->learner);
  const pid_t pid = process == processes_.end() ? -1 : pid_of(*process->second.fd);
  say_(fmt::format("learner {}{} has pushed nothing for {} s, and the others wait for it",
                   stall->learner, pid < 0 ? "" : fmt::format(" (process {})", pid),
                   stall->lasts.count()));
}

EventLoop::Clock::time_point PsServer::settle() {
  const auto now = EventLoop::Clock::now();
  std::erase_if(peers_, [now](const auto& entry) {
    return !entry.second.learner && entry.second.until < now;
  });
  if (!seats_) return finish_if_all_are_gone() ? now : now + kLook;
  for (const std::uint32_t learner : seats_->left()) end(learner);
  const auto gone = seats_->settle();
  on_fenced();
  for (const std::uint32_t learner : gone) let_go(learner, LearnerLines::Kind::end, "has ended");
  if (finish_if_all_are_gone()) return now;
  look_at_step(now);
  return now + (is_about_to_end() ? std::chrono::steady_clock::duration(kSettle) : kLook);
}

}  // namespace bellows::ps
