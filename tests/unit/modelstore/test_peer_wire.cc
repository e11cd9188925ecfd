// SPDX-License-Identifier: Apache-2.0
// Which node is asked for what, and the words of nodes to each other.
#include <criterion/criterion.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "modelstore/loader/loader_wire.h"
#include "modelstore/peerwire/peer_frame.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_nodes.h"

using namespace bellows;

namespace {

ModelDigest source_of(unsigned number) {
  ModelDigest source;
  source.bytes[0] = static_cast<unsigned char>(number);
  source.bytes[1] = static_cast<unsigned char>(number >> 8);
  return source;
}

std::vector<PeerNode> nodes_in(const std::string& list) {
  auto nodes = parse_peer_nodes(list, 6831);
  cr_assert(nodes.ok(), "%s: %s", list.c_str(), nodes.error().text.c_str());
  return *nodes;
}

PeerQuestion some_question() {
  PeerQuestion q;
  q.number = std::string(32, 'a');
  q.challenge = std::string(32, 'c');
  q.to = "n1";
  q.from = "n2";
  q.mode = PeerMode::load;
  q.tenant = "vision";
  q.model = "llama/1b";
  q.source = source_of(7);
  return q;
}

PeerAnswer some_answer() {
  PeerAnswer a;
  a.number = std::string(32, 'b');
  a.word = PeerWord::have;
  a.digest = source_of(9);
  a.bytes = 8192;
  a.catalogue_at = 4096;
  a.catalogue_bytes = 100;
  return a;
}

}  // namespace

Test(peer_nodes, are_written_as_slurm_does) {
  std::string names;
  for (const PeerNode& node : nodes_in("n[1-3,07],login,gpu[09-10]-x,a=10.0.0.4,b=h:7,c=[::1]:8"))
    names += node.name + "@" + node.host + ":" + std::to_string(node.port) + " ";
  cr_expect_str_eq(names.c_str(),
                   "n1@n1:6831 n2@n2:6831 n3@n3:6831 n07@n07:6831 login@login:6831 "
                   "gpu09-x@gpu09-x:6831 gpu10-x@gpu10-x:6831 a@10.0.0.4:6831 b@h:7 c@::1:8 ");
  for (const char* wrong : {"", ",", "n[1-3", "n[3-1]", "n[]", "n[1-99999999]", "n[x]", "a b",
                            "a,a", "n1,n[1-2]", "a=", "a=h:0", "a=h:65536", "a=h:x", "a=h h",
                            "n[1-2]=h", "n[-1]", "n[1-]", "n[9999999999]"})
    cr_expect(!parse_peer_nodes(wrong, 6831).ok(), "%s", wrong);
}

Test(peer_order, is_even_and_stays) {
  const auto nodes = nodes_in("n[1-20]");
  auto fewer = nodes;
  fewer.erase(fewer.begin() + 6);
  std::map<std::string, unsigned> homes;
  for (unsigned i = 0; i < 2000; ++i) {
    const auto best = best_homes(nodes, source_of(i), 3);
    cr_assert(best.ok() && best->size() == 3);
    ++homes[best->front().name];
    // It does not depend on the list's order.
    auto turned = nodes;
    std::reverse(turned.begin(), turned.end());
    cr_assert(*best_homes(turned, source_of(i), 3) == *best);
    // Without one node, only what it had goes elsewhere: to the next in its order.
    const auto left = best_homes(fewer, source_of(i), 1)->front().name;
    cr_assert(left == (best->front().name == "n7" ? (*best)[1].name : best->front().name));
  }
  cr_expect_eq(homes.size(), 20);
  // 100 each; the standard deviation is 10.
  for (const auto& [name, count] : homes)
    cr_expect(count > 50 && count < 150, "%s has %u", name.c_str(), count);
}

Test(peer_order, has_one_better_of_two) {
  for (unsigned i = 0; i < 50; ++i) {
    const auto best = *best_homes(nodes_in("n[1-9]"), source_of(i), 9);
    for (std::size_t at = 1; at < best.size(); ++at) {
      cr_expect(*is_better_home(source_of(i), best[at - 1].name, best[at].name));
      cr_expect(!*is_better_home(source_of(i), best[at].name, best[at - 1].name));
    }
  }
}

Test(peer_letters, read_back) {
  auto q = some_question();
  cr_expect(*parse_peer_question(text_of(q)) == q);
  q.digest = source_of(3);
  q.mode = PeerMode::loading;
  cr_expect(*parse_peer_question(text_of(q)) == q);
  auto a = some_answer();
  cr_expect(*parse_peer_answer(text_of(a)) == a);
  a.word = PeerWord::none;
  a.text = "why not";
  cr_expect(*parse_peer_answer(text_of(a)) == a);
}

Test(peer_letters, of_another_kind_are_refused) {
  const std::string q = text_of(some_question()), a = text_of(some_answer());
  cr_expect(!parse_peer_question(a).ok() && !parse_peer_answer(q).ok());
  for (std::size_t length = 0; length < q.size(); ++length)
    cr_expect(!parse_peer_question(q.substr(0, length)).ok());
  for (std::size_t length = 0; length < a.size(); ++length)
    cr_expect(!parse_peer_answer(a.substr(0, length)).ok());
  cr_expect(!parse_peer_question(q + "\n").ok() && !parse_peer_answer(a + "x").ok());
  const auto with = [](std::string text, const std::string& what, const std::string& instead) {
    return text.replace(text.find(what), what.size(), instead);
  };
  for (const auto& [what, instead] :
       std::vector<std::pair<std::string, std::string>>{{"mode load", "mode run"},
                                                        {"to n1", "to n 1"},
                                                        {"model llama/1b", "model ../x"},
                                                        {"model llama/1b", "model "},
                                                        {"from n2", "to n2"},
                                                        {"number a", "number A"},
                                                        {"challenge c", "challenge "}})
    cr_expect(!parse_peer_question(with(q, what, instead)).ok(), "%s", instead.c_str());
  for (const auto& [what, instead] : std::vector<std::pair<std::string, std::string>>{
           {"\nbytes 8192", "\nbytes 0"},
           {"\nbytes 8192", "\nbytes 4195"},
           {"\nbytes 8192", "\nbytes 08192"},
           {"\nbytes 8192", "\nbytes -1"},
           {"\nbytes 8192", "\nbytes 18446744073709551615"},
           {"word have", "word other"},
           {"catalogue_at 4096", "catalogue_at 8192"}})
    cr_expect(!parse_peer_answer(with(a, what, instead)).ok(), "%s", instead.c_str());
}

Test(peer_frames, come_whole_or_not_at_all) {
  std::string bytes = frame_of(PeerFrame::question, "sealed") + wait_frame(0x0102030405060708) +
                      frame_of(PeerFrame::got, "");
  std::string came;
  std::vector<PeerLetter> letters;
  for (const char c : bytes) {
    came += c;
    auto letter = take_frame(came);
    cr_assert(letter.ok());
    if (*letter) letters.push_back(**letter);
  }
  cr_assert_eq(letters.size(), 3);
  cr_expect(letters[0].text == "sealed" && far_of(letters[1].text) == 0x0102030405060708);
  cr_expect(came.empty() && letters[2].kind == PeerFrame::got);
  for (const std::string& wrong :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("Q\xff\xff\xff\xff"),
        std::string("W\0\0\0\x09", 5), std::string("H\0\0\0\x08", 5), std::string("G\0\0\0\x01", 5),
        std::string("Q\0\0\x40\x01", 5)}) {
    std::string text = wrong;
    cr_expect(!take_frame(text).ok());
  }
}

Test(peers_task, reads_back) {
  PeersTask task;
  task.self = "n3";
  task.first_ms = 1000;
  task.patience_ms = 500;
  task.tenant = "vision";
  task.model = "m";
  task.nodes = {{PeerMode::load, {"n1", "10.0.0.1", 6831}}, {PeerMode::have, {"n2", "::1", 7}}};
  const auto back = PeersTask::parse(task.to_text());
  cr_assert(back.ok());
  cr_expect(back->self == "n3" && back->munge_socket.empty() && back->patience_ms == 500 &&
            back->first_ms == 1000);
  cr_expect(back->tenant == "vision" && back->model == "m" && !back->digest);
  cr_expect(back->nodes == task.nodes);
  for (const char* wrong : {"", "a\nb", "a\n\n1\n1\nt\nm\n\n0 n1 h", "a\n\n1\n1\nt\nm\n\n9 n1 h 1"})
    cr_expect(!PeersTask::parse(wrong).ok(), "%s", wrong);
}
