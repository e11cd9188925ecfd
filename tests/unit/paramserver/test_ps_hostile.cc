// SPDX-License-Identifier: Apache-2.0
// A learner of the same user that writes whatever it can to its slot, and sends whatever it can:
// bellows-ps neither ends nor stands still, and what others push counts once.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "common/fd.h"
#include "common/plain/packet.h"
#include "paramserver/memory/layout.h"
#include "paramserver/wire/ps_wire.h"
#include "tests/unit/paramserver/ps_processes.h"

using namespace bellows;
using namespace bellows::ps_test;
using ps::PsMessage;
using ps::PsWord;
using std::chrono::milliseconds;
using Random = std::mt19937_64;

namespace {

constexpr unsigned kShards = 2;

/// The slot of this process's learner: where it begins and ends.
std::pair<unsigned char*, unsigned char*> my_slot_range() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("bellows-ps-slot") == std::string::npos) continue;
    const auto address = [&line](std::size_t at) {
      return reinterpret_cast<unsigned char*>(std::stoull(line.substr(at), nullptr, 16));
    };
    return {address(0), address(line.find('-') + 1)};
  }
  std::abort();
}

unsigned char* my_slot() { return my_slot_range().first; }

template <typename T>
void write_word(unsigned char* at, T value) {
  reinterpret_cast<std::atomic<T>*>(at)->store(value);
}

/// Random bytes all the time: over pins, and over these numbers of the header.
void scribble(const std::vector<std::size_t>& offsets) {
  unsigned char* const slot = my_slot();
  std::thread([slot, offsets] {
    for (Random random(1);;) {
      for (const std::size_t offset : offsets)
        write_word<std::uint32_t>(slot + offset, static_cast<std::uint32_t>(random()));
      for (unsigned s = 0; s < kShards; ++s)
        write_word<std::uint64_t>(slot + ps::kApart + 8 * s, random());
    }
  }).detach();
}

/// Until it is told that it is put out.
[[noreturn]] void wait_to_be_put_out(OpenLearner& open) {
  while (bellows_ps_pull(open.ps) == BELLOWS_PS_OK) std::this_thread::sleep_for(milliseconds(1));
  _exit(open.error().find("put this learner out") != std::string::npos ? 0 : 1);
}

constexpr std::size_t kScales = offsetof(ps::SlotHeader, scale);
constexpr std::size_t kPublished = offsetof(ps::SlotHeader, published);
constexpr std::size_t kWaiting = offsetof(ps::SlotHeader, waiting);
constexpr std::size_t kAttached = offsetof(ps::SlotHeader, attached);

[[noreturn]] void scribble_everywhere() {
  OpenLearner open;
  scribble({kPublished, kWaiting, kScales, kScales + 4, kAttached});
  wait_to_be_put_out(open);
}

/// It never says that it has a gradient, so nobody may take any notice.
[[noreturn]] void scribble_without_publishing() {
  const OpenLearner open;
  scribble({kWaiting, kScales, kScales + 4, kAttached});
  for (;;) pause();
}

/// Its gradients are zero.
[[noreturn]] void take_back_what_was_published() {
  OpenLearner open;
  unsigned char* const slot = my_slot();
  const auto first = reinterpret_cast<std::atomic<std::uint32_t>*>(slot)->load();
  std::thread([slot, first] {
    for (;;)
      for (unsigned i = 0; i < 2; ++i) write_word<std::uint32_t>(slot, first + i);
  }).detach();
  wait_to_be_put_out(open);
}

/// What both gradients say of rows are the last pages.
unsigned char* my_rows() { return my_slot_range().second - 2 * ps::kPage; }

[[noreturn]] void name_more_rows_than_there_are() {
  OpenLearner open;
  (void)bellows_ps_begin(open.ps);
  for (const std::size_t list : {0, 1})
    write_word(my_rows() + list * ps::kPage, std::uint64_t{1} << 50);
  (void)bellows_ps_push(open.ps, 1);
  wait_to_be_put_out(open);
}

/// Of gradients of zero, while they are published and read.
[[noreturn]] void name_any_rows() {
  OpenLearner open;
  unsigned char* const lists = my_rows();
  std::thread([lists] {
    for (Random random(4);;)
      for (unsigned char* const list : {lists, lists + ps::kPage}) {
        const std::uint64_t counts[] = {random() % 11, random() % 1000, random()};
        for (std::size_t i = 0; i <= kTensors[1] / row_width; ++i)
          write_word<std::uint64_t>(list + 8 * i, i == 0 ? counts[random() % 3] : random() % 11);
      }
  }).detach();
  while (bellows_ps_begin(open.ps) == BELLOWS_PS_OK) {
    for (std::size_t t = 0; t < std::size(kTensors); ++t)
      std::memset(bellows_ps_gradient(open.ps, t), 0, kTensors[t] * sizeof(float));
    if (bellows_ps_push(open.ps, 1) != BELLOWS_PS_OK) break;
  }
  wait_to_be_put_out(open);
}

[[noreturn]] void leave_and_stay() {
  OpenLearner open;
  write_word<std::uint32_t>(my_slot() + offsetof(ps::SlotHeader, left), 1);
  scribble({kPublished, offsetof(ps::SlotHeader, left)});
  for (;;) pause();
}

pid_t the_server;

/// All memory that bellows-ps has, by way of /proc: a mapping that got smaller would end who reads.
[[noreturn]] void shrink_and_seal() {
  const OpenLearner open;
  for (;;)
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", the_server))) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry, ignored).string().find("bellows-ps-") ==
          std::string::npos)
        continue;
      auto memory = open_file(entry.path().string(), O_RDWR);
      if (memory && (ftruncate(memory->get(), 0) == 0 ||
                     fcntl(memory->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0))
        kill(the_server, SIGKILL);
    }
}

[[noreturn]] void join_again_and_again() {
  for (;;) OpenLearner();
}

Fd connected() {
  plain::Handle socket;
  (void)plain::connect_to(getenv("BELLOWS_PS_SOCKET"), &socket, 1000);
  return Fd(socket.release());
}

void send(const Fd& socket, const void* data, std::size_t bytes, int passed) {
  const iovec part = {const_cast<void*>(data), bytes};
  (void)plain::send_packet(socket.get(), &part, 1, passed, MSG_DONTWAIT);
}

constexpr ps::TensorSpec kCounts[] = {{64}, {100}, {28}};

int memory_of(const void* data, std::size_t bytes) {
  const int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (write(fd, data, bytes) < 0) std::abort();
  return fd;
}

/// What a learner may pass instead of the sizes of its tensors.
std::vector<int> strange_descriptors() {
  int pipes[2], sockets[2];
  if (pipe2(pipes, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
    std::abort();
  const int sparse = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const int large = memfd_create("large", MFD_CLOEXEC);
  for (const int fd : {sparse, large})
    if (ftruncate(fd, 1L << 40) != 0) std::abort();
  const int sealed = memory_of(kCounts, 8);
  fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return {-1,
          pipes[0],
          pipes[1],
          sockets[0],
          sparse,
          large,
          sealed,
          memory_of(kCounts, 0),
          memory_of(kCounts, sizeof kCounts),
          open("/dev/zero", O_RDWR | O_CLOEXEC)};
}

PsMessage join_message() {
  PsMessage message;
  message.word = PsWord::join;
  message.tensors = std::size(kCounts);
  message.terms.group[0].rate = 1;
  message.terms.epsilon = 1e-8;
  return message;
}

PsMessage random_message(Random& random) {
  PsMessage message = join_message();
  message.word = static_cast<PsWord>(random() % 9);
  if (random() % 4 == 0) message.tensors = random() % (2 * PsMessage::kMostTensors);
  if (random() % 8 == 0) message.tensors = random();
  if (random() % 8 == 0) message.length = static_cast<std::uint32_t>(random());
  if (random() % 8 == 0) message.terms.rule = static_cast<std::uint32_t>(random());
  return message;
}

/// Of any length and contents, with any descriptor; the answers are never read, and sizes change
/// while they are read.
[[noreturn]] void send_anything() {
  Random random(2);
  const auto descriptors = strange_descriptors();
  const int changing = memory_of(kCounts, sizeof kCounts);
  std::thread([changing] {
    for (Random other(3);;) {
      const std::uint64_t size = other() % 3 == 0 ? kCounts[0].count : other();
      if (pwrite(changing, &size, sizeof size, 0) < 0 ||
          ftruncate(changing, static_cast<off_t>(other() % 32)) < 0)
        std::abort();
    }
  }).detach();
  std::deque<Fd> sockets;
  std::vector<char> bytes(70000);
  for (;;) {
    const Fd& socket = sockets.emplace_back(connected());
    for (std::uint64_t i = random() % 6; i > 0; --i) {
      const std::uint64_t which = random() % (descriptors.size() + 1);
      const int passed = which < descriptors.size() ? descriptors[which] : changing;
      const PsMessage message = random_message(random);
      for (std::size_t at = 0; at < bytes.size(); at += 1 + random() % 4096)
        bytes[at] = static_cast<char>(random());
      if (random() % 4 == 0)
        send(socket, bytes.data(), random() % bytes.size(), passed);
      else
        send(socket, &message, random() % 8 == 0 ? random() % sizeof message : sizeof message,
             passed);
    }
    if (sockets.size() > 32) sockets.pop_front();
  }
}

/// Until the answers that it does not read have filled its socket, which stays open.
void ask_without_reading(const Fd& socket) {
  const PsMessage message = join_message();
  const Fd counts(memory_of(kCounts, sizeof kCounts));
  const iovec part = {const_cast<PsMessage*>(&message), sizeof message};
  for (int i = 0; i < 1000; ++i)
    cr_assert_eq(plain::send_packet(socket.get(), &part, 1, counts.get(), 0), 0);
}

[[noreturn]] void flood_with_connections() {
  allow_many_descriptors();
  std::deque<Fd> sockets;
  for (;;) {
    sockets.push_back(connected());
    if (!sockets.back() || sockets.size() > 5000) sockets.clear();
  }
}

[[noreturn]] void stop_while_it_joins() {
  const Fd socket = connected();
  const PsMessage message = join_message();
  send(socket, &message, sizeof message, memory_of(kCounts, sizeof kCounts));
  raise(SIGSTOP);
  _exit(1);
}

std::size_t descriptors_of(pid_t process) {
  std::size_t count = 0;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), ignored)) {
    (void)entry;
    ++count;
  }
  return count;
}

double pace(const std::atomic<std::uint32_t>& counter) {
  const std::uint32_t before = counter;
  const auto from = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(milliseconds(400));
  return (counter - before) /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

void expect_no_harm(const char* what, void (*hostile)(), bool is_put_out = false) {
  Server server({"--threads=2", "--learners=64"});
  Counters counters;
  OpenLearner reader;
  cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s", reader.error().c_str());
  const pid_t worker = server.worker();
  the_server = server.pid();
  const pid_t good = start_learner(0, 1'000'000'000, counters);
  cr_assert(eventually([&] { return counters[0] > 10; }));
  const double alone = pace(counters[0]);
  const pid_t bad = fork();
  if (bad == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(30);
    hostile();
  }
  const double beside = pace(counters[0]);
  const std::uint32_t before = counters[0];
  cr_expect(eventually([&] { return counters[0] > before + 100; }), "others stand still");
  // Who comes now is let in.
  const pid_t late = start_learner(1, 20, counters);
  cr_expect_eq(exit_code(late), 0, "nobody else can join");
  cr_expect_lt(descriptors_of(worker), 1300u);
  if (is_put_out) {
    cr_expect_eq(exit_code(bad), 0, "it is not put out");
  } else {
    kill(bad, SIGKILL);
    cr_expect_eq(exit_code(bad), -1);
  }
  kill(good, SIGKILL);
  cr_expect_eq(exit_code(good), -1);
  cr_expect(eventually([&] { return slots_of(server.pid()) == 1; }), "seats are left");
  const auto weights = reader.pull();
  const std::uint32_t pushed = counters[0];
  cr_expect(is_sum(weights, {pushed, 20}) || is_sum(weights, {pushed + 1, 20}),
            "a gradient is missing, or there twice");
  cr_expect_eq(server.worker(), worker, "the server was killed");
  std::fprintf(
      stderr, "%s\n",
      fmt::format("{}: {:.0f} updates a second beside it, {:.0f} without", what, beside, alone)
          .c_str());
}

}  // namespace

Test(ps_hostile, writes_to_its_slot, .timeout = 120) {
  expect_no_harm("random bytes in its slot", scribble_everywhere, true);
  expect_no_harm("random bytes, but nothing published", scribble_without_publishing);
  expect_no_harm("takes back what it published", take_back_what_was_published, true);
  expect_no_harm("says that it has left, and stays", leave_and_stay);
  expect_no_harm("makes memory smaller, and seals it", shrink_and_seal);
}

Test(ps_hostile, names_any_rows, .timeout = 120) {
  const Said said;
  row_width = 10;
  expect_no_harm("any rows", name_any_rows, true);
  expect_no_harm("more rows than there are", name_more_rows_than_there_are, true);
  // Before any of them is read.
  cr_expect(said.has("a gradient has 1125899906842624 rows, but the matrix has 10 of them"), "%s",
            said.text().c_str());
}

Test(ps_hostile, sends_anything, .timeout = 120) {
  expect_no_harm("any messages", send_anything);
  expect_no_harm("stops while it joins", stop_while_it_joins);
}

Test(ps_hostile, comes_again_and_again, .timeout = 120) {
  expect_no_harm("joins all the time", join_again_and_again);
  expect_no_harm("floods the socket", flood_with_connections);
}

Test(ps_hostile, fills_no_log, .timeout = 60) {
  const Said said;
  const Server server;
  const auto say_nonsense = [] {
    OpenLearner open;
    const auto published = reinterpret_cast<std::atomic<std::uint32_t>*>(my_slot());
    published->store(published->load() + 100);
    while (bellows_ps_pull(open.ps) == BELLOWS_PS_OK) std::this_thread::yield();
  };
  for (int i = 0; i < 30; ++i) {
    cr_assert_eq(OpenLearner().code, BELLOWS_PS_OK);
    say_nonsense();
  }
  const std::string text = said.text();
  for (const char* const words : {" joins", " has ended", " is put out"})
    cr_expect_eq(count_of(words, text), 10, "%zu lines of%s", count_of(words, text), words);
}

Test(ps_hostile, who_asks_without_reading_makes_no_room_for_a_flood, .timeout = 60) {
  allow_many_descriptors();
  const Server server;
  const Fd deaf = connected();
  ask_without_reading(deaf);
  std::deque<Fd> flood;
  for (int i = 0; i < 1500; ++i) flood.push_back(connected());
  OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
  cr_expect_lt(descriptors_of(server.worker()), 1300u, "%zu descriptors",
               descriptors_of(server.worker()));
}

Test(ps_hostile, a_first_learner_that_never_says_its_weights_is_not_waited_for, .timeout = 60) {
  const Server server;
  const Fd socket = connected();
  const PsMessage message = join_message();
  const Fd counts(memory_of(kCounts, sizeof kCounts));
  send(socket, &message, sizeof message, counts.get());
  const OpenLearner learner;
  cr_expect_eq(learner.code, BELLOWS_PS_OK, "%s", learner.error().c_str());
}
