// SPDX-License-Identifier: Apache-2.0
// Nodes that ask one another for models before they ask a server, and nodes that lie to them.
#include <set>

#include "tests/unit/modelstore/peer_support.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;

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

Test(model_peers, give_no_older_version_for_a_new_one, .timeout = 120) {
  FileServer server;
  const std::string old = one_tensor("w", random_bytes(3 * kMega));
  server.put("/m.safetensors", old);
  Nodes nodes(2);
  nodes.remote("m", server.url("/m.safetensors"));
  nodes.start();
  const std::string digest = nodes[0].open("m").digest();
  cr_expect(nodes[1].open("m").digest() == digest);
  server.put("/m.safetensors", one_tensor("w", random_bytes(3 * kMega)), "\"v2\"");
  // This one knows the digest, and is given the old version by it.
  const auto before = nodes[1].said(", from node n1");
  nodes[1].evict("m");
  cr_expect(nodes[1].open("m").digest() == digest);
  cr_expect_eq(nodes[1].said(", from node n1"), before + 1, "%s", nodes[1].log().c_str());
  const auto version = [&](const char* etag) {
    return nodes.call("m", source_at(server.url("/m.safetensors"), old.size(), etag));
  };
  const auto offer = ask_peer(nodes.node(1), PeerMode::have, version("\"v2\""));
  cr_expect(offer.ok() && offer->answer.word == PeerWord::none);
  cr_expect(ask_peer(nodes.node(1), PeerMode::have, version("\"v1\""))->answer.word ==
            PeerWord::have);
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
      const std::string challenge = *new_peer_number();
      const std::string hello = frame_of(PeerFrame::hello, challenge);
      (void)::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
      std::string bytes;
      char chunk[4096];
      ssize_t got = 0;
      std::optional<PeerLetter> letter;
      while (!letter && (got = recv(socket.get(), chunk, sizeof chunk, 0)) > 0) {
        bytes.append(chunk, static_cast<std::size_t>(got));
        letter = *take_frame(bytes);
      }
      const auto question = letter ? open_peer_question(munge_, letter->text, name_, challenge)
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
  explicit Lies(const std::string& more = "--stall=60", const std::string& wait = "10",
                bool knows_digest = false)
      : nodes(2, 1, wait) {
    data = random_bytes(3 * kMega);
    file = one_tensor("w", data);
    server.put("/m.safetensors", file);
    nodes.each(more);
    // As it lies in memory, and its digest.
    TieredStore plain;
    plain.remote("m", server.url("/m.safetensors"));
    plain.start();
    right.digest = *ModelDigest::parse(plain.open("m").digest());
    nodes.remote("m", server.url("/m.safetensors"),
                 "tenant=a" + (knows_digest ? ",digest=" + right.digest.to_string() : ""));
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

Test(model_peers, that_have_another_digest_than_is_known_are_left, .timeout = 120) {
  Lies lies("--stall=60", "10", true);
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    // All fits, but it is another model.
    PeerAnswer offer = lies.offer();
    const std::string other(offer.bytes, 'x');
    offer.digest = digest_of(other);
    caller.send(answer_frame(lies.munge(), question, offer));
    caller.send(other);
    caller.stall();
  });
  cr_expect(lies.nodes[0].open("m").data("w") == lies.data, "%s", lies.nodes[0].log().c_str());
  lies.expect_right_bytes("it has another digest than was asked for");
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
  Lies lies("--stall=60", "1");
  lies.lie([&](HttpPeer& caller, const PeerQuestion&) { caller.stall(); });
  const auto began = Clock::now();
  lies.expect_right_bytes("node n2 is asked for no models for 30 s: it does not answer");
  cr_expect(Clock::now() - began < seconds(10));
}

Test(model_peers, that_make_no_progress_are_left, .timeout = 120) {
  Lies lies("--stall=4", "1.9");
  std::atomic<bool> ends{false};
  lies.lie([&](HttpPeer& caller, const PeerQuestion& question) {
    PeerAnswer waits;
    waits.word = PeerWord::wait;
    caller.send(answer_frame(lies.munge(), question, waits));
    while (!ends && caller.send(wait_frame(7))) caller.pause(100);
  });
  lies.expect_right_bytes("node n2 is not asked for a model for 30 s: it does not answer");
  // It is alive, and may have others.
  cr_expect_eq(lies.nodes[0].said("is asked for no models"), 0);
  ends = true;
}

Test(model_peers, that_have_sealed_no_word_cannot_make_others_wait, .timeout = 120) {
  Lies lies;
  std::atomic<bool> ends{false};
  lies.lie([&](HttpPeer& caller, const PeerQuestion&) {
    for (unsigned far = 1; !ends && far < 120 && caller.send(wait_frame(far)); ++far)
      caller.pause(100);
  });
  const auto began = Clock::now();
  lies.expect_right_bytes("it says what nobody asked for");
  cr_expect(Clock::now() - began < seconds(9));
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

Test(model_peers, spread_a_model_as_a_tree, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(24 * kMega);
  const std::string file = one_tensor("w", data);
  server.put("/m.safetensors", file);
  Nodes nodes(10);
  nodes.remote("m", server.url("/m.safetensors"));
  nodes.start();
  // All of them wait for the home by then.
  server.hold(true);
  std::thread opens([&] { open_on_all(nodes, "m", data); });
  cr_assert(eventually([&] { return server.requests() >= 10; }));
  server.hold(false);
  opens.join();
  cr_expect(server.sent() <= file.size() + 100, "%lu", server.sent());
  cr_expect_eq(nodes.loads_from_nodes(), 9);
  std::set<std::string> givers;
  for (unsigned i = 0; i < nodes.size(); ++i)
    for (unsigned giver = 1; giver <= 10; ++giver)
      if (nodes[i].said(", from node n" + std::to_string(giver) + "\n") > 0)
        givers.insert("n" + std::to_string(giver));
  cr_expect(givers.size() >= 2, "all got it from one");
}

Test(model_peers, go_on_without_munged, .timeout = 120) {
  FileServer server;
  const std::string data = random_bytes(kMega);
  server.put("/m.safetensors", one_tensor("w", data));
  Nodes nodes(2);
  nodes.remote("m", server.url("/m.safetensors"));
  nodes.start();
  nodes.end_munged();
  open_on_all(nodes, "m", data);
  cr_expect_eq(nodes.loads_from_nodes(), 0);
  cr_expect(nodes[0].said("cannot seal a message") == 1, "%s", nodes[0].log().c_str());
}
