// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/peer_connection.h"
#include "modelstore/peerwire/peer_wire.h"
#include "tests/unit/modelstore/tiered_store.h"

namespace bellows::model_test {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

inline Clock::time_point in(int s) { return Clock::now() + seconds(s); }

/// munged with a key of its own.
class Munged {
 public:
  Munged() {
    write_file(path("key"), random_bytes(128));
    cr_assert_eq(chmod(path("key").c_str(), 0600), 0);
    // Other users connect to it, too.
    cr_assert_eq(chmod(scratch_.path().c_str(), 0755), 0);
    ChildOptions options;
    options.command = {"munged",
                       "--foreground",
                       "--force",
                       "--key-file=" + path("key"),
                       "--socket=" + socket(),
                       "--pid-file=" + path("pid"),
                       "--log-file=" + path("log"),
                       "--seed-file=" + path("seed"),
                       "--num-threads=2"};
    options.pipe_err = true;
    options.death_signal = SIGKILL;
    auto started = Child::start(options);
    cr_assert(started.ok(), "%s", started.error().text.c_str());
    child_.emplace(std::move(*started));
    cr_assert(eventually([&] { return munge().seal("x", 0, seconds(60)).ok(); }));
  }
  std::string socket() const { return path("socket"); }
  Munge munge() const { return Munge(socket()); }
  void end() { child_.reset(); }

 private:
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

  ScratchDir scratch_;
  std::optional<Child> child_;
};

/// A port that nobody had a moment ago.
inline std::uint16_t free_port() {
  const Fd probe(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  socklen_t length = sizeof address;
  address.sin_family = AF_INET;
  cr_assert_eq(bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

/// So many nodes on this machine, n1 and so on, which have the same models.
class Nodes {
 public:
  /// `wait`: for a node's first word. On a machine with much else to do it may be late.
  explicit Nodes(unsigned count, unsigned stores = UINT32_MAX, const std::string& wait = "10") {
    for (unsigned i = 1; i <= count; ++i)
      nodes_.push_back({"n" + std::to_string(i), "127.0.0.1", free_port()});
    std::string list;
    for (const PeerNode& node : nodes_)
      list +=
          (list.empty() ? "" : ",") + node.name + "=" + node.host + ":" + std::to_string(node.port);
    for (unsigned i = 0; i < std::min(count, stores); ++i) {
      stores_.push_back(std::make_unique<TieredStore>());
      option(i, "--peers=" + list);
      option(i, "--peer-name=" + nodes_[i].name);
      option(i, "--munge-socket=" + munged_.socket());
      option(i, "--small-pages");
      option(i, "--peer-wait=" + wait);
    }
  }
  void option(unsigned i, const std::string& text) { stores_[i]->option(text); }
  void each(const std::string& text) {
    for (auto& store : stores_) store->option(text);
  }
  void remote(const std::string& name, const std::string& url,
              const std::string& more = "tenant=a") {
    for (auto& store : stores_) store->remote(name, url, more);
  }
  void start() {
    for (auto& store : stores_) store->start();
    for (unsigned i = 0; i < stores_.size(); ++i) await(i);
  }
  /// Until its port is open.
  void await(unsigned i) {
    cr_assert(eventually([&] { return PeerConnection::open(nodes_[i], in(1)).ok(); }));
  }
  TieredStore& operator[](unsigned i) { return *stores_[i]; }
  std::size_t size() const { return stores_.size(); }
  const PeerNode& node(unsigned i) const { return nodes_[i]; }
  const Munged& munged() const { return munged_; }
  void end_munged() { munged_.end(); }
  /// The node that says it got a model from another, and how many do.
  std::size_t loads_from_nodes() {
    std::size_t count = 0;
    for (auto& store : stores_) count += store->said(", from node n");
    return count;
  }

  /// A call of a node that is none of these.
  PeerCall call(const std::string& name, const ModelDigest& source) const {
    PeerCall call;
    call.munge = munged_.munge();
    call.question.from = "x";
    call.question.tenant = "a";
    call.question.model = name;
    call.question.source = source;
    call.first = seconds(20);
    call.progress = [] {};
    return call;
  }

 private:
  Munged munged_;
  std::vector<PeerNode> nodes_;
  std::vector<std::unique_ptr<TieredStore>> stores_;
};

/// Of a connection that was just made.
inline std::string challenge_of(PeerConnection& connection) {
  const auto hello = connection.receive(in(10));
  cr_assert(hello.ok(), "%s", hello.error().text.c_str());
  cr_assert(hello->kind == PeerFrame::hello);
  return hello->text;
}

/// A bellows-model-peer whose daemon is the test, as the node n1.
class PeerProcess {
 public:
  explicit PeerProcess(const Munged& munged) : node_{"n1", "127.0.0.1", free_port()} {
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    const Fd theirs(ends[1]);
    ChildOptions options;
    options.command = {std::string(HELPERS) + "/bellows-model-peer", node_.name, "60000",
                       munged.socket()};
    options.in_fd = theirs.get();
    options.death_signal = SIGKILL;
    auto child = Child::start(options);
    cr_assert(child.ok(), "%s", child.error().text.c_str());
    child_.emplace(std::move(*child));
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(node_.port);
    cr_assert_eq(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    cr_assert_eq(listen(listener.get(), 16), 0);
    tell(PeerOp::listen, 0, "", listener.get());
  }
  /// The challenge goes to `question`.
  PeerConnection connect(PeerQuestion& question) const {
    std::optional<PeerConnection> connection;
    cr_assert(eventually([&] {
      auto opened = PeerConnection::open(node_, in(5));
      if (opened) connection.emplace(std::move(*opened));
      return opened.ok();
    }));
    question.challenge = challenge_of(*connection);
    return std::move(*connection);
  }
  /// What it asks the daemon, or tells it.
  PeerMessage next(PeerOp wanted) const {
    PeerMessage message;
    do {
      pollfd p = {socket_.get(), POLLIN, 0};
      cr_assert_eq(poll(&p, 1, 20000), 1, "it asks nothing");
      const auto got = receive_message(socket_.get(), &message, nullptr);
      cr_assert(got.ok(), "%s", got.error().text.c_str());
    } while (message.op != wanted);
    return message;
  }
  void tell(PeerOp op, std::uint64_t number, const std::string& text = "", int passed = -1) const {
    PeerMessage message;
    message.op = op;
    message.number = number;
    message.bytes = kMega;
    message.set_text(text);
    cr_assert(send_message(socket_.get(), message, passed).ok());
  }
  /// Does nothing until it goes on, and then finds all that came meanwhile.
  void stop() {
    kill(child_->pid(), SIGSTOP);
    cr_assert(eventually([&] {
      std::ifstream stat("/proc/" + std::to_string(child_->pid()) + "/stat");
      std::string number, name, state;
      return stat >> number >> name >> state && state == "T";
    }));
  }
  void go_on() { kill(child_->pid(), SIGCONT); }

 private:
  PeerNode node_;
  Fd socket_;
  std::optional<Child> child_;
};

/// As a loader says it of one file.
inline ModelDigest source_at(const std::string& url, std::uint64_t size,
                             const std::string& etag = "\"v1\"") {
  auto hasher = TreeHasher::make();
  std::string text(1, '\0');
  text += url + "\n" + std::to_string(size) + "\n" + etag + "\n";
  return *hasher->leaf(text);
}

/// All bytes of what was offered; "" if they end before.
inline std::string bytes_of(PeerOffer& offer) {
  std::string bytes(offer.answer.bytes, '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    auto got = offer.connection.read_some(reinterpret_cast<unsigned char*>(&bytes[at]),
                                          bytes.size() - at, in(20));
    if (!got) return "";
    at += *got;
  }
  return bytes;
}

inline ModelDigest digest_of(const std::string& bytes) {
  auto hasher = TreeHasher::make();
  std::vector<ModelDigest> leaves;
  for (std::size_t at = 0; at < bytes.size(); at += kLeafBytes)
    leaves.push_back(*hasher->leaf(std::string_view(bytes).substr(at, kLeafBytes)));
  return *hasher->root(leaves, bytes.size());
}

/// Opens it on all nodes at once.
inline void open_on_all(Nodes& nodes, const std::string& name, const std::string& data) {
  std::vector<std::thread> threads;
  std::atomic<unsigned> right{0};
  for (unsigned i = 0; i < nodes.size(); ++i)
    threads.emplace_back([&, i] {
      const OpenModel model = nodes[i].open(name, "a", 40000);
      if (model.ok() && model.data("w") == data) ++right;
    });
  for (auto& thread : threads) thread.join();
  for (unsigned i = 0; i < nodes.size() && right != nodes.size(); ++i)
    std::fprintf(stderr, "%s\n", nodes[i].log().c_str());
  cr_assert_eq(right.load(), nodes.size());
}

}  // namespace bellows::model_test
