// SPDX-License-Identifier: Apache-2.0
// A node that others ask for models, and whoever else reaches its port.
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "tests/unit/modelstore/peer_support.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;
using modelwire::ControlOp;

namespace {

/// A number that the kernel has of a process.
std::uint64_t status_of(pid_t process, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  std::string word;
  while (status >> word && word != key) {
  }
  std::uint64_t value = UINT64_MAX;
  status >> (key.starts_with("Cap") ? std::hex : std::dec) >> value;
  return value;
}

/// Names of nodes for which the first has a model loaded: it does not for a better home.
std::vector<std::string> nodes_behind(const ModelDigest& source, std::size_t count) {
  std::vector<std::string> names;
  for (int i = 0; names.size() < count; ++i)
    if (const std::string name = "c" + std::to_string(i); *is_better_home(source, "n1", name))
      names.push_back(name);
  return names;
}

/// One node that has a model, and whoever asks it.
struct Home {
  explicit Home(const std::string& more = "--stall=60", std::size_t bytes = 3 * kMega,
                const std::string& wait = "10")
      : nodes(2, 1, wait) {
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
  /// For a connection with this challenge.
  PeerQuestion question(const std::string& challenge) const {
    PeerQuestion question = call().question;
    question.number = *new_peer_number();
    question.challenge = challenge;
    question.to = "n1";
    return question;
  }
  /// What comes back for these bytes, until the home closes; "" for nothing.
  std::string reply(const std::string& bytes) const {
    return reply_to([&](const std::string&) { return bytes; });
  }
  /// The same for bytes that depend on the challenge.
  std::string reply_to(const std::function<std::string(const std::string&)>& bytes) const {
    auto connection = PeerConnection::open(nodes.node(0), in(5));
    cr_assert(connection.ok());
    (void)connection->send(bytes(challenge_of(*connection)), in(5));
    std::string all(4096, '\0');
    const auto got =
        connection->read_some(reinterpret_cast<unsigned char*>(all.data()), all.size(), in(10));
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

Test(model_home, gives_what_was_added_and_then_configured, .timeout = 120) {
  Home home;
  const std::string url = home.server.url("/m.safetensors");
  TieredStore& node = home.nodes[0];
  ControlClient(node).add("a", "added", url);
  auto call = home.call("added");
  call.question.digest = ModelDigest::parse(node.open("added").digest());
  // It is the same model, in memory still, and of the list from here on.
  home.nodes.remote("added", url);
  node.restart();
  home.nodes.await(0);
  const auto offer = home.ask(PeerMode::have, call);
  cr_expect(offer.ok() && offer->answer.word == PeerWord::have, "%s", node.log().c_str());
  // Also for the next daemon, which forgets what its list has no more.
  node.forget_options();
  node.restart();
  cr_expect(!node.open("added").ok());
}

Test(model_home, believes_no_wrong_credential, .timeout = 120) {
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  const Munge munge = home.nodes.munged().munge();
  const auto framed = [&](const Result<std::string>& sealed) {
    cr_assert(sealed.ok());
    return frame_of(PeerFrame::question, *sealed);
  };
  std::string good;
  const auto reply = home.reply_to([&](const std::string& challenge) {
    good = *seal(munge, home.question(challenge));
    return framed(good);
  });
  cr_expect(reply.starts_with("A"));
  cr_expect(!munge.open(good).ok(), "it was used before");
  cr_expect_str_empty(home.reply_to([&](const std::string& challenge) {
                            auto elsewhere = home.question(challenge);
                            elsewhere.to = "n2";
                            return framed(seal(munge, elsewhere));
                          })
                          .c_str(),
                      "for another node");
  cr_expect_str_empty(home.reply_to([&](const std::string& challenge) {
                            std::string forged = framed(seal(munge, home.question(challenge)));
                            forged[forged.size() / 2] ^= 1;
                            return forged;
                          })
                          .c_str(),
                      "changed on its way");
  // As whoever had the port before was sent it, and nobody has used it.
  std::string before;
  cr_expect_str_empty(home.reply_to([&](const std::string& challenge) {
                            before = challenge;
                            return std::string("nonsense");
                          })
                          .c_str());
  cr_expect_str_empty(home.reply(framed(seal(munge, home.question(before)))).c_str(),
                      "for another connection");
  for (const std::string& nonsense :
       {std::string("GET /m HTTP/1.1\r\n\r\n"), frame_of(PeerFrame::question, "nonsense"),
        framed(munge.seal("nonsense", geteuid(), seconds(60))), std::string("Q\xff\xff\xff\xff"),
        frame_of(PeerFrame::got, ""), framed(good) + framed(good)})
    cr_expect_str_empty(home.reply(nonsense).c_str());
  // Nobody waits for ever for who says nothing.
  cr_expect_str_empty(home.reply("Q").c_str());
}

Test(model_home, believes_no_other_user, .timeout = 120) {
  if (geteuid() != 0) cr_skip_test("needs root, to be another user");
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  const Munge munge = home.nodes.munged().munge();
  const uid_t reader = geteuid();
  cr_expect(holds_as(kAlice, [&] {
    return home
        .reply_to([&](const std::string& challenge) {
          const auto sealed = munge.seal(text_of(home.question(challenge)), reader, seconds(60));
          return sealed ? frame_of(PeerFrame::question, *sealed) : "";
        })
        .empty();
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
  Home home("--stall=2", 40 * kMega, "0.9");
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
  const std::vector<std::string> names = nodes_behind(home.source, 100);
  home.server.hold(true);
  std::atomic<unsigned> got{0}, sent_on{0}, failed{0};
  std::vector<std::thread> threads;
  for (const std::string& name : names)
    threads.emplace_back([&, name] {
      PeerCall call = home.call();
      call.question.from = name;
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
  const pid_t process = home.nodes[0].helpers("bellows-model-peer").at(0);
  cr_expect(status_of(process, "RssAnon:") < 20000, "kB: %lu", status_of(process, "RssAnon:"));
  // One ticket was for all of them, and is given back.
  ControlClient control(home.nodes[0]);
  cr_expect(eventually([&] { return control.call(ControlOp::evict, "a", "m").empty(); }));
}

Test(model_home, tells_how_far_each_of_its_models_is, .timeout = 120) {
  FileServer server;
  Nodes nodes(2, 1);
  std::vector<PeerCall> calls;
  for (const char* name : {"m0", "m1"}) {
    const std::string path = std::string("/") + name;
    const std::string file = one_tensor("w", random_bytes(20 * kMega));
    server.put(path, file);
    nodes.remote(name, server.url(path));
    calls.push_back(nodes.call(name, source_at(server.url(path), file.size())));
  }
  nodes.start();
  // Of both there are the first pieces, and nothing behind them for now.
  server.stall(true);
  std::vector<std::future<bool>> asked;
  std::atomic<unsigned> got_on[2] = {0, 0};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    // The answer, the first word of how far it is, and that it got further.
    calls[i].progress = [&got_on, i] { ++got_on[i]; };
    calls[i].question.from = nodes_behind(calls[i].question.source, 1).front();
    asked.push_back(std::async(std::launch::async, [&, i] {
      return ask_peer(nodes.node(0), PeerMode::load, calls[i]).ok();
    }));
  }
  cr_expect(eventually([&] { return got_on[0] > 2 && got_on[1] > 2; }), "%u and %u",
            got_on[0].load(), got_on[1].load());
  nodes[0].stop();
  for (auto& each : asked) cr_expect(!each.get());
}

Test(model_home, is_waited_for_while_it_has_not_begun, .timeout = 120) {
  FileServer server;
  Nodes nodes(2, 1);
  std::vector<PeerCall> calls;
  for (const char* name : {"m0", "m1", "m2"}) {
    const std::string path = std::string("/") + name;
    const std::string file = one_tensor("w", random_bytes(kMega));
    server.put(path, file);
    nodes.remote(name, server.url(path));
    calls.push_back(nodes.call(name, source_at(server.url(path), file.size())));
  }
  nodes.start();
  // Two are looked for, and the third has no loader yet.
  server.hold(true);
  std::atomic<unsigned> signs[3] = {0, 0, 0};
  std::vector<std::future<bool>> asked;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].patience = seconds(2);
    calls[i].progress = [&signs, i] { ++signs[i]; };
    calls[i].question.from = nodes_behind(calls[i].question.source, 1).front();
    asked.push_back(std::async(std::launch::async, [&, i] {
      const auto offer = ask_peer(nodes.node(0), PeerMode::load, calls[i]);
      return offer && offer->answer.word == PeerWord::have;
    }));
  }
  const auto began = Clock::now();
  cr_expect(eventually([&] {
    return Clock::now() - began > seconds(3) && signs[0] > 9 && signs[1] > 9 && signs[2] > 9;
  }));
  server.hold(false);
  for (std::size_t i = 0; i < asked.size(); ++i) cr_expect(asked[i].get(), "%zu", i);
}

Test(model_home, asks_anew_after_a_refusal, .timeout = 60) {
  const Munged munged;
  for (const bool lends_nonsense : {false, true}) {
    PeerProcess process(munged);
    const auto ask = [&](PeerConnection& connection, PeerQuestion& question) {
      question.number = *new_peer_number();
      question.to = "n1";
      question.from = "n2";
      question.tenant = "a";
      question.model = "m";
      const auto sealed = seal(munged.munge(), question);
      cr_assert(connection.send(frame_of(PeerFrame::question, *sealed), in(5)).ok());
    };
    const auto told = [&](PeerConnection& connection, const PeerQuestion& question) {
      for (;;) {
        const auto letter = connection.receive(in(10));
        cr_assert(letter.ok(), "%s", letter.error().text.c_str());
        if (letter->kind == PeerFrame::wait) continue;
        const auto answer = open_peer_answer(munged.munge(), letter->text, question);
        cr_assert(answer.ok());
        if (answer->word != PeerWord::wait) return answer->text;
      }
    };
    PeerQuestion first, second;
    PeerConnection early = process.connect(first), late = process.connect(second);
    ask(early, first);
    const auto number = process.next(PeerOp::ask).number;
    process.tell(PeerOp::progress, number);
    // The refusal and the second question come at once.
    process.stop();
    const Fd memory(memfd_create("not sealed", MFD_CLOEXEC));
    process.tell(lends_nonsense ? PeerOp::lent : PeerOp::none, number, "not now",
                 lends_nonsense ? memory.get() : -1);
    ask(late, second);
    process.go_on();
    cr_expect(has(told(early, first), lends_nonsense ? "is not sealed" : "not now"));
    const auto again = process.next(PeerOp::ask).number;
    cr_expect_neq(again, number);
    process.tell(PeerOp::none, again, "nor now");
    cr_expect_str_eq(told(late, second).c_str(), "nor now");
  }
}

Test(model_home, answers_in_a_process_without_rights, .timeout = 120) {
  Home home;
  const OpenModel model = home.nodes[0].open("m");
  const pid_t process = home.nodes[0].helpers("bellows-model-peer").at(0);
  cr_expect_eq(status_of(process, "CapEff:"), 0);
  cr_expect_eq(status_of(process, "CapPrm:"), 0);
  cr_expect_eq(status_of(process, "Seccomp:"), 2);
  // One that dies is replaced, and what it had borrowed is given back.
  auto offer = home.ask(PeerMode::have, home.call());
  cr_assert(offer.ok());
  kill(process, SIGKILL);
  cr_expect(home.nodes[0].says("bellows-model-peer has ended"));
  // Its port is nobody else's meanwhile, and who connects gets its answer from the next one.
  cr_expect(home.ask(PeerMode::have, home.call()).ok());
}

Test(model_home, takes_no_wait_that_cannot_be, .timeout = 60) {
  for (const char* wait : {"0", "-1", "0.0001", "2", "100"}) {
    Nodes nodes(2, 1, wait);
    nodes.option(0, "--stall=4");
    cr_expect(has(nodes[0].start_in_vain(), "--peer-wait"), "%s", wait);
  }
}

Test(model_home, does_not_start_what_ends_again_and_again, .timeout = 60) {
  Nodes nodes(2, 1);
  const std::string helpers = nodes[0].path() + "/helpers", starts = nodes[0].path() + "/starts";
  std::filesystem::create_directory(helpers);
  for (const char* name : {"bellows-model-loader", "bellows-model-keeper"})
    std::filesystem::create_symlink(std::string(HELPERS) + "/" + name, helpers + "/" + name);
  const std::string broken = helpers + "/bellows-model-peer";
  write_file(broken, "#!/bin/sh\necho >> " + starts + "\n");
  cr_assert_eq(chmod(broken.c_str(), 0755), 0);
  const auto began = Clock::now();
  nodes[0].start("1G", helpers);
  cr_expect(eventually([&] {
    std::error_code gone;
    const auto count = std::filesystem::file_size(starts, gone);
    return !gone && count >= 4;
  }));
  // After 1, 2 and 4 seconds.
  cr_expect(Clock::now() - began > seconds(6));
  cr_expect_eq(nodes[0].said("has ended"), 1, "%s", nodes[0].log().c_str());
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
