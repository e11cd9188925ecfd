// SPDX-License-Identifier: Apache-2.0
// Nodes that ask one another for models before they ask a server: several bellows-modeld with one
// munged, each with a port of its own.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>

#include "modelstore/digest/tree_digest.h"
#include "modelstore/loader/peer_connection.h"
#include "tests/unit/modelstore/tiered_store.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;
using modelwire::ControlOp;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

Clock::time_point in(int s) { return Clock::now() + seconds(s); }

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

 private:
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

  ScratchDir scratch_;
  std::optional<Child> child_;
};

/// A port that nobody had a moment ago.
std::uint16_t free_port() {
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
  explicit Nodes(unsigned count, unsigned stores = UINT32_MAX) {
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
      // Slow machines: a test of stalls sets its own.
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
    call.progress = [] {};
    return call;
  }

 private:
  Munged munged_;
  std::vector<PeerNode> nodes_;
  std::vector<std::unique_ptr<TieredStore>> stores_;
};

/// As a loader says it of one file.
ModelDigest source_at(const std::string& url, std::uint64_t size,
                      const std::string& etag = "\"v1\"") {
  auto hasher = TreeHasher::make();
  std::string text(1, '\0');
  text += url + "\n" + std::to_string(size) + "\n" + etag + "\n";
  return *hasher->leaf(text);
}

/// All bytes of what was offered; "" if they end before.
std::string bytes_of(PeerOffer& offer) {
  std::string bytes(offer.answer.bytes, '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    auto got = offer.connection.read_some(reinterpret_cast<unsigned char*>(&bytes[at]),
                                          bytes.size() - at, in(20));
    if (!got) return "";
    at += *got;
  }
  return bytes;
}

ModelDigest digest_of(const std::string& bytes) {
  auto hasher = TreeHasher::make();
  std::vector<ModelDigest> leaves;
  for (std::size_t at = 0; at < bytes.size(); at += kLeafBytes)
    leaves.push_back(*hasher->leaf(std::string_view(bytes).substr(at, kLeafBytes)));
  return *hasher->root(leaves, bytes.size());
}

/// Opens it on all nodes at once.
void open_on_all(Nodes& nodes, const std::string& name, const std::string& data) {
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

}  // namespace

Test(model_peers, read_a_model_once_for_all, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(9 * kMega + 77);
  const std::string file = one_tensor("w", data);
  server.put("/m.safetensors", file);
  Nodes nodes(5);
  nodes.remote("m", server.url("/m.safetensors?signature=s3cret"));
  nodes.start();
  open_on_all(nodes, "m", data);
  // Each node asks for the version, which takes one byte.
  cr_expect(server.sent() <= file.size() + 100, "%lu", server.sent());
  cr_expect_eq(nodes.loads_from_nodes(), 4);
  for (unsigned i = 0; i < nodes.size(); ++i)
    cr_expect(!has(nodes[i].log(), "s3cret"), "%s", nodes[i].log().c_str());
}

Test(model_peers, ask_a_home_that_is_back_and_one_that_was_away, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  Nodes nodes(3);
  nodes.remote("m", server.url("/m.safetensors"));
  nodes.start();
  open_on_all(nodes, "m", data);
  const auto once = server.sent();
  // Each in its turn is a node that was booted: its home, or those behind it, have the model.
  for (unsigned i = 0; i < nodes.size(); ++i) {
    nodes[i].reboot();
    nodes.await(i);
    const OpenModel model = nodes[i].open("m");
    cr_expect(model.ok() && model.data("w") == data, "%s", nodes[i].log().c_str());
  }
  cr_expect(server.sent() <= once + 10, "%lu and then %lu", once, server.sent());
  // All daemons are killed, and their keepers have the memory.
  for (unsigned i = 0; i < nodes.size(); ++i) {
    nodes[i].restart();
    nodes.await(i);
  }
  nodes[1].evict("m");
  cr_expect(nodes[1].open("m").data("w") == data);
  cr_expect(server.sent() <= once + 20, "%lu and then %lu", once, server.sent());
}

Test(model_peers, pass_over_a_home_that_is_gone, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(3 * kMega);
  const std::string file = one_tensor("w", data);
  server.put("/m.safetensors", file);
  // Of four nodes, one is never there: the home of some of these, and of others not.
  Nodes nodes(4, 3);
  for (int i = 0; i < 6; ++i)
    nodes.remote("m" + std::to_string(i), server.url("/m.safetensors?" + std::to_string(i)));
  nodes.start();
  for (int i = 0; i < 6; ++i) open_on_all(nodes, "m" + std::to_string(i), data);
  // Each node asks for the version, which takes one byte.
  cr_expect(server.sent() <= 6 * (file.size() + 10), "%lu", server.sent());
}

namespace {

/// Answers as a node, however the test wants.
class FakeNode {
 public:
  using Handler = std::function<void(HttpPeer& caller, const PeerQuestion& question)>;

  FakeNode(const PeerNode& node, Munge munge, Handler handler)
      : munge_(std::move(munge)),
        handler_(std::move(handler)),
        name_(node.name),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(node.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int yes = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    cr_assert_eq(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    cr_assert_eq(listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~FakeNode() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  unsigned asked() const { return asked_; }
  Munge munge() const { return munge_; }

 private:
  void accept_all() {
    for (;;) {
      Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) return;
      std::string bytes;
      char chunk[4096];
      ssize_t got = 0;
      std::optional<PeerLetter> letter;
      while (!letter && (got = recv(socket.get(), chunk, sizeof chunk, 0)) > 0) {
        bytes.append(chunk, static_cast<std::size_t>(got));
        letter = *take_frame(bytes);
      }
      const auto question = letter ? open_peer_question(munge_, letter->text, name_)
                                   : Result<PeerQuestion>(Error{ErrorKind::io, ""});
      HttpPeer caller(std::move(socket), nullptr);
      if (!question) continue;
      ++asked_;
      handler_(caller, *question);
    }
  }

  Munge munge_;
  Handler handler_;
  std::string name_;
  Fd listener_;
  std::atomic<unsigned> asked_{0};
  std::thread thread_;
};

std::string answer_frame(const Munge& munge, const PeerQuestion& question, PeerAnswer answer) {
  answer.number = question.number;
  return frame_of(PeerFrame::answer, *seal(munge, answer));
}

/// A server with a model, a node that asks a node that lies, and what is right.
struct Lies {
  explicit Lies(const std::string& more = "--stall=60") : nodes(2, 1) {
    data = random_bytes(3 * kMega);
    file = one_tensor("w", data);
    server.put("/m.safetensors", file);
    nodes.remote("m", server.url("/m.safetensors"));
    nodes.each(more);
    // As it lies in memory, and its digest.
    TieredStore plain;
    plain.remote("m", server.url("/m.safetensors"));
    plain.start();
    right.digest = *ModelDigest::parse(plain.open("m").digest());
  }
  void lie(FakeNode::Handler handler) {
    fake = std::make_unique<FakeNode>(nodes.node(1), nodes.munged().munge(), std::move(handler));
    nodes.start();
  }
  /// The right answer, from which tests depart. Its digest is right for none of the bytes here.
  PeerAnswer offer() const {
    PeerAnswer answer = right;
    answer.word = PeerWord::have;
    answer.bytes = (file.size() / 4096 + 2) * 4096;
    answer.catalogue_at = 0;
    answer.catalogue_bytes = 8;
    return answer;
  }
  Munge munge() const { return nodes.munged().munge(); }
  /// Opens it, at most twice: an error is as good as another way.
  void expect_right_bytes(const std::string& said) {
    OpenModel model = nodes[0].open("m", "a", 40000);
    if (!model.ok()) {
      model.close();
      const OpenModel again = nodes[0].open("m", "a", 40000);
      cr_expect(again.ok() && again.data("w") == data, "%s", nodes[0].log().c_str());
    } else {
      cr_expect(model.data("w") == data, "%s", nodes[0].log().c_str());
    }
    cr_expect(fake->asked() >= 1);
    cr_expect_eq(nodes[0].said(said), 1, "%s", nodes[0].log().c_str());
    cr_expect_eq(nodes[0].said("from node"), 0);
  }

  FileServer server;
  Nodes nodes;
  std::string data, file;
  PeerAnswer right;
  std::unique_ptr<FakeNode> fake;
};

}  // namespace

Test(model_peers, that_lie_about_bytes_are_left, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    const PeerAnswer offer = lies.offer();
    caller.send(answer_frame(lies.munge(), question, offer));
    caller.send(std::string(offer.bytes, 'x'));
    caller.stall();
  });
  lies.expect_right_bytes("does not have the digest that it told");
  // And it is not asked for this model again.
  lies.nodes[0].evict("m");
  const unsigned asked = lies.fake->asked();
  cr_expect(lies.nodes[0].open("m").data("w") == lies.data);
  cr_expect_eq(lies.fake->asked(), asked);
}

Test(model_peers, that_reset_or_end_in_the_middle_are_left, .timeout = 120) {
  for (const bool resets : {false, true}) {
    Lies lies;
    lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
      const PeerAnswer offer = lies.offer();
      caller.send(answer_frame(lies.munge(), question, offer));
      caller.send(std::string(offer.bytes / 2, 'x'));
      resets ? caller.reset() : caller.close();
    });
    lies.expect_right_bytes("node n2 is not asked for a model that it gave");
  }
}

Test(model_peers, that_stall_are_left, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    const PeerAnswer offer = lies.offer();
    caller.send(answer_frame(lies.munge(), question, offer));
    caller.send(std::string(offer.bytes / 2, 'x'));
    caller.stall();
  });
  const auto began = Clock::now();
  lies.expect_right_bytes("it sends less than 1 MiB a second");
  cr_expect(Clock::now() - began < seconds(30));
}

Test(model_peers, that_say_nothing_are_passed_over, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion&) { caller.stall(); });
  const auto began = Clock::now();
  lies.expect_right_bytes("node n2 is asked for no models for 30 s: it does not answer");
  cr_expect(Clock::now() - began < seconds(10));
}

Test(model_peers, that_make_no_progress_are_left, .timeout = 120) {
  Lies lies("--stall=4");
  std::atomic<bool> ends{false};
  lies.lie([&](HttpPeer& caller, const PeerQuestion&) {
    while (!ends && caller.send(wait_frame(7))) caller.pause(100);
  });
  lies.expect_right_bytes("it does not answer");
  ends = true;
}

Test(model_peers, whose_answers_are_others_are_not_believed, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    PeerQuestion other = question;
    other.number = std::string(32, '0');
    caller.send(answer_frame(lies.munge(), other, lies.offer()));
    caller.stall();
  });
  lies.expect_right_bytes("an answer was to another question");
}

Test(model_peers, whose_answers_are_sealed_by_others_are_not_believed, .timeout = 120) {
  if (geteuid() != 0) cr_skip_test("needs root, to be another user");
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    PeerAnswer answer = lies.offer();
    answer.number = question.number;
    const Munge munge = lies.munge();
    const uid_t reader = geteuid();
    // What another user seals, it writes to the caller itself.
    (void)holds_as(kAlice, [&] {
      const auto sealed = munge.seal(text_of(answer), reader, seconds(60));
      return sealed && caller.send(frame_of(PeerFrame::answer, *sealed));
    });
    caller.stall();
  });
  lies.expect_right_bytes("uid 64001 answered");
}

Test(model_peers, that_say_nonsense_are_left, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion&) {
    caller.send("HTTP/1.1 400 Bad Request\r\n\r\n");
    caller.stall();
  });
  lies.expect_right_bytes("it says what no bellows-model-peer says");
}

Test(model_peers, that_name_nodes_that_are_none_are_left, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    PeerAnswer answer;
    answer.word = PeerWord::other;
    answer.text = "evil";
    caller.send(answer_frame(lies.munge(), question, answer));
  });
  OpenModel model = lies.nodes[0].open("m");
  cr_expect(model.ok() && model.data("w") == lies.data, "%s", lies.nodes[0].log().c_str());
}

Test(model_peers, a_size_that_is_no_size_takes_no_memory, .timeout = 120) {
  Lies lies;
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    PeerAnswer offer = lies.offer();
    offer.bytes = std::uint64_t{1} << 50;
    caller.send(answer_frame(lies.munge(), question, offer));
    caller.stall();
  });
  cr_expect(has(lies.nodes[0].open("m").error(), "budget"));
  lies.expect_right_bytes("there was no room for a model of the size that it told");
}

namespace {

/// One node that has a model, and whoever asks it.
struct Home {
  explicit Home(const std::string& more = "--stall=60", std::size_t bytes = 3 * kMega)
      : nodes(2, 1) {
    data = random_bytes(bytes);
    file = one_tensor("w", data);
    server.put("/m.safetensors", file);
    nodes.remote("m", server.url("/m.safetensors"));
    nodes.each(more);
    nodes.start();
    source = source_at(server.url("/m.safetensors"), file.size());
  }
  PeerCall call(const std::string& name = "m") const { return nodes.call(name, source); }
  Result<PeerOffer> ask(PeerMode mode, const PeerCall& call) const {
    return ask_peer(nodes.node(0), mode, call);
  }
  PeerQuestion question() const {
    PeerQuestion question = call().question;
    question.number = *new_peer_number();
    question.to = "n1";
    return question;
  }
  /// What comes back for these bytes, until the home closes; "" for nothing.
  std::string reply(const std::string& bytes, int limit = 10) const {
    auto connection = PeerConnection::open(nodes.node(0), in(5));
    cr_assert(connection.ok());
    (void)connection->send(bytes, in(5));
    std::string all(4096, '\0');
    const auto got =
        connection->read_some(reinterpret_cast<unsigned char*>(all.data()), all.size(), in(limit));
    cr_expect(got || !has(got.error().text, "less than"), "it is still open");
    return got ? all.substr(0, *got) : "";
  }

  FileServer server;
  Nodes nodes;
  std::string data, file;
  ModelDigest source;
};

}  // namespace

Test(model_home, gives_what_it_has_and_nothing_else, .timeout = 120) {
  Home home;
  const std::string local = home.nodes[0].add("local", "data");
  home.nodes[0].restart();
  home.nodes.await(0);
  const auto none = [&](PeerMode mode, const PeerCall& call) {
    const auto offer = home.ask(mode, call);
    return offer && offer->answer.word == PeerWord::none;
  };
  cr_expect(none(PeerMode::have, home.call()) && none(PeerMode::loading, home.call()));
  cr_expect_eq(home.server.requests(), 0,
               "nobody may have it loaded by a question for what is there");
  // By its digest or by its source.
  const OpenModel model = home.nodes[0].open("m");
  cr_expect(home.nodes[0].open("local").ok());
  auto offer = home.ask(PeerMode::have, home.call());
  cr_assert(offer.ok() && offer->answer.word == PeerWord::have);
  cr_expect(offer->answer.digest.to_string() == model.digest());
  cr_expect(digest_of(bytes_of(*offer)) == offer->answer.digest);
  auto other = home.call();
  other.question.source.bytes[0] ^= 1;
  cr_expect(none(PeerMode::have, other));
  other.question.digest = offer->answer.digest;
  cr_expect(home.ask(PeerMode::have, other)->answer.word == PeerWord::have);
  other.question.digest->bytes[3] ^= 1;
  cr_expect(none(PeerMode::have, other));
  // What it does not know, a file of its own, what somebody added, and another tenant's.
  ControlClient control(home.nodes[0]);
  cr_assert_str_eq(control.add("a", "added", home.server.url("/m.safetensors")).c_str(), "");
  cr_expect(home.nodes[0].open("added").ok());
  for (const char* name : {"absent", "local", "added"})
    cr_expect(none(PeerMode::load, home.call(name)), "%s", name);
  auto of_b = home.call();
  of_b.question.tenant = "b";
  cr_expect(none(PeerMode::load, of_b));
}

Test(model_home, believes_no_wrong_credential, .timeout = 120) {
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  const Munge munge = home.nodes.munged().munge();
  const auto framed = [&](const Result<std::string>& sealed) {
    cr_assert(sealed.ok());
    return frame_of(PeerFrame::question, *sealed);
  };
  const std::string good = framed(seal(munge, home.question()));
  cr_expect(home.reply(good).starts_with("A"));
  cr_expect_str_empty(home.reply(good).c_str(), "it was used before");
  auto elsewhere = home.question();
  elsewhere.to = "n2";
  cr_expect_str_empty(home.reply(framed(seal(munge, elsewhere))).c_str(), "for another node");
  std::string forged = framed(seal(munge, home.question()));
  forged[forged.size() / 2] ^= 1;
  cr_expect_str_empty(home.reply(forged).c_str(), "changed on its way");
  const auto text = text_of(home.question());
  const auto old = munge.seal(text, geteuid(), seconds(1));
  cr_assert(eventually([began = Clock::now()] { return Clock::now() - began > seconds(3); }));
  cr_expect_str_empty(home.reply(framed(old)).c_str(), "too old");
  for (const std::string& nonsense :
       {std::string("GET /m HTTP/1.1\r\n\r\n"), frame_of(PeerFrame::question, "nonsense"),
        framed(munge.seal("nonsense", geteuid(), seconds(60))), std::string("Q\xff\xff\xff\xff"),
        frame_of(PeerFrame::got, ""), good + good})
    cr_expect_str_empty(home.reply(nonsense).c_str());
  // Nobody waits for ever for who says nothing.
  cr_expect_str_empty(home.reply("Q").c_str());
}

Test(model_home, believes_no_other_user, .timeout = 120) {
  if (geteuid() != 0) cr_skip_test("needs root, to be another user");
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  const Munge munge = home.nodes.munged().munge();
  const std::string text = text_of(home.question());
  const uid_t reader = geteuid();
  cr_expect(holds_as(kAlice, [&] {
    const auto sealed = munge.seal(text, reader, seconds(60));
    return sealed && home.reply(frame_of(PeerFrame::question, *sealed)).empty();
  }));
  cr_expect(home.nodes[0].says("uid 64001 asked"), "%s", home.nodes[0].log().c_str());
}

Test(model_home, is_not_crowded_out_by_strangers, .timeout = 120) {
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  std::vector<PeerConnection> strangers;
  for (int i = 0; i < 600; ++i) {
    auto stranger = PeerConnection::open(home.nodes.node(0), in(5));
    cr_assert(stranger.ok(), "%d: %s", i, stranger.error().text.c_str());
    strangers.push_back(std::move(*stranger));
  }
  for (int i = 0; i < 20; ++i) cr_expect(home.ask(PeerMode::have, home.call()).ok());
}

Test(model_home, lets_go_who_takes_nothing, .timeout = 120) {
  Home home("--stall=2", 40 * kMega);
  const OpenModel model = home.nodes[0].open("m");
  std::vector<Result<PeerOffer>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(home.ask(PeerMode::have, home.call()));
  for (const auto& each : slow) cr_assert(each.ok() && each->answer.word == PeerWord::have);
  // The fifth waits for one of them.
  auto offer = home.ask(PeerMode::have, home.call());
  cr_assert(offer.ok(), "%s", offer.error().text.c_str());
  cr_expect(digest_of(bytes_of(*offer)) == offer->answer.digest);
  for (auto& each : slow) cr_expect(bytes_of(*each).empty(), "it was let go");
}

Test(model_home, serves_a_hundred_with_one_read, .timeout = 120) {
  Home home("--stall=60", 2 * kMega);
  // Who is a better home would not have it loaded here.
  std::vector<std::string> names;
  for (int i = 0; names.size() < 100; ++i)
    if (const std::string name = "c" + std::to_string(i); *is_better_home(home.source, "n1", name))
      names.push_back(name);
  home.server.hold(true);
  std::atomic<unsigned> got{0}, sent_on{0}, failed{0};
  std::vector<std::thread> threads;
  for (const std::string& name : names)
    threads.emplace_back([&, name] {
      PeerCall call = home.call();
      call.question.from = name;
      // A hundred on a small machine.
      call.first = seconds(20);
      auto offer = home.ask(PeerMode::load, call);
      if (!offer || offer->answer.word == PeerWord::none) {
        ++failed;
        std::fprintf(stderr, "%s: %s\n", name.c_str(),
                     offer ? offer->answer.text.c_str() : offer.error().text.c_str());
      } else if (offer->answer.word == PeerWord::other) {
        ++sent_on;
      } else if (digest_of(bytes_of(*offer)) == offer->answer.digest) {
        ++got;
        (void)offer->connection.send(frame_of(PeerFrame::got, ""), in(5));
      }
    });
  cr_assert(eventually([&] { return home.server.requests() > 0; }));
  home.server.hold(false);
  for (auto& thread : threads) thread.join();
  cr_expect(failed == 0 && got + sent_on == 100, "%u got it, %u were sent on, %u failed",
            got.load(), sent_on.load(), failed.load());
  cr_expect(got >= 4 && sent_on >= 50, "%u got it, %u were sent on", got.load(), sent_on.load());
  cr_expect(home.server.sent() <= home.file.size() + 10);
  // One ticket was for all of them, and is given back.
  ControlClient control(home.nodes[0]);
  cr_expect(eventually([&] { return control.call(ControlOp::evict, "a", "m").empty(); }));
}

Test(model_home, that_is_killed_in_the_middle_is_done_without, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(9 * kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  Nodes nodes(2);
  nodes.remote("m", server.url("/m.safetensors"));
  nodes.start();
  const auto source = source_at(server.url("/m.safetensors"), one_tensor("w", data).size());
  const unsigned home = *is_better_home(source, "n1", "n2") ? 0 : 1;
  // It waits for its server for ever.
  server.stall(true);
  auto first = std::async(std::launch::async, [&] {
    const OpenModel model = nodes[1 - home].open("m", "a", 40000);
    return model.ok() && model.data("w") == data;
  });
  cr_assert(eventually([&] { return server.has_stalled(); }));
  nodes[home].stop();
  server.stall(false);
  cr_expect(first.get(), "%s", nodes[1 - home].log().c_str());
  cr_expect(nodes[1 - home].said("closed the connection") == 1, "%s",
            nodes[1 - home].log().c_str());
}
