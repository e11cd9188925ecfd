// SPDX-License-Identifier: Apache-2.0
// A server that is killed between any two steps of an update, and learners that end.
#include <criterion/criterion.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/keeper/kept.h"
#include "common/plain/packet.h"
#include "paramserver/server/kept_seats.h"
#include "paramserver/server/seats.h"
#include "tests/unit/paramserver/ps_world.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

enum class Break { choose, half, apply, record, flip, none };

/// One update of one shard, of which a server that is killed does only the first steps.
void update_until(const World& world, std::uint32_t shard, const Member& member, Break point) {
  const Member* const from[] = {&member};
  ShardSteps steps = world.steps(shard);
  for (const Member& each : world.plain_members()) steps.read_pin(each);
  const std::uint32_t buffer = steps.choose();
  if (point == Break::choose) return;
  if (point == Break::half) {
    float* data = world.weights().buffer(shard, buffer);
    std::memset(data, 0xa5, world.control().shard(shard).count * sizeof *data / 2);
    return;
  }
  steps.apply(buffer, from);
  if (point == Break::apply) return;
  steps.record(buffer, from);
  if (point == Break::record) return;
  steps.flip(buffer);
}

}  // namespace

Test(ps_faults, a_server_killed_after_any_step_loses_and_doubles_nothing, .timeout = 60) {
  for (const Break point :
       {Break::choose, Break::half, Break::apply, Break::record, Break::flip, Break::none}) {
    World world(2, {64, 64});
    world.join(0, 1, 7);
    world.join(1, 1, 7);
    Learner learners[2];
    for (std::uint32_t l = 0; l < 2; ++l) {
      world.attach(l, &learners[l]);
      push_mark(learners[l], l);
      push_mark(learners[l], l);
    }
    const auto members = world.plain_members();
    update_until(world, 0, members[0], Break::none);
    update_until(world, 0, members[1], point);
    world.restart();
    world.start();
    for (std::uint32_t l = 0; l < 2; ++l) {
      push_mark(learners[l], l);
      cr_expect(learners[l].drain(20000), "after step %d", static_cast<int>(point));
    }
    world.stop();
    world.expect_sums({{0, 7, 3}, {1, 7, 3}});
  }
}

// The learner believes what it is told of an update, and writes over the payload. So it is told
// only what is sure.
Test(ps_faults, a_learner_is_not_told_what_is_not_sure, .timeout = 60) {
  World world(1, {64});
  world.join(0, 1, 0);
  Learner learner;
  world.attach(0, &learner);
  push_mark(learner, 0);
  push_mark(learner, 0);
  cr_expect_null(learner.gradient(0));
  update_until(world, 0, world.plain_members()[0], Break::record);
  cr_expect_null(learner.gradient(0));
  update_until(world, 0, world.plain_members()[0], Break::flip);
  cr_expect_not_null(learner.gradient(0));
}

Test(ps_faults, what_a_reader_holds_stays_as_it_is, .timeout = 60) {
  World world(2, {64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  Learner reader, writer;
  world.attach(0, &reader);
  world.attach(1, &writer);
  const float* held = reader.pull(0);
  const std::vector<float> before(held, held + 64);
  world.start();
  for (int i = 0; i < 1000; ++i) push_mark(writer, 1);
  cr_expect(writer.drain(20000));
  cr_expect(std::memcmp(before.data(), held, sizeof(float) * 64) == 0);
  cr_expect(reader.pull(0) != held);
}

Test(ps_faults, a_sequence_that_makes_no_sense_is_fenced, .timeout = 60) {
  World world(2, {64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  Learner good;
  world.attach(1, &good);
  world.slot_of(0).published = 1000;
  world.start();
  push_mark(good, 1);
  cr_expect(good.drain(20000));
  world.stop();
  world.expect_sums({{1, 0, 1}});
  cr_expect_eq(world.fenced(), std::vector<std::uint32_t>{0});
}

Test(ps_faults, pins_of_a_hostile_learner_stop_nobody, .timeout = 60) {
  World world(2, {64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  Learner good, bad;
  world.attach(0, &bad);
  world.attach(1, &good);
  world.start();
  std::atomic<bool> ends{false};
  std::thread hostile([&] {
    for (std::uint64_t i = 0; !ends; ++i) world.pin_of(0, 0) = i * 0x9e37'79b9'7f4a'7c15;
  });
  for (int i = 0; i < 2000; ++i) push_mark(good, 1);
  cr_expect(good.drain(20000));
  ends = true;
  hostile.join();
  world.stop();
  world.expect_sums({{1, 0, 2000}});
}

Test(ps_faults, what_a_learner_published_before_its_end_counts_and_nothing_after, .timeout = 60) {
  World world(1, {64, 64});
  world.join(0, 1, 0);
  Learner first, second;
  world.attach(0, &first);
  push_mark(first, 0);
  push_mark(first, 0);
  world.end(0);
  // A zombie.
  world.slot_of(0).published = 3;
  world.start();
  cr_expect(world.wait_for_end(0));
  world.leave(0);
  world.join(0, 2, 100);
  world.attach(0, &second);
  for (int i = 0; i < 3; ++i) push_mark(second, 0);
  cr_expect(second.drain(20000));
  world.stop();
  world.expect_sums({{0, 0, 2}, {0, 100, 3}});
}

// One shard has applied what the other finds makes no sense.
Test(ps_faults, a_join_does_not_wait_for_one_that_a_shard_has_fenced, .timeout = 60) {
  World world(2, {64, 64});
  Seats seats(world.control(), 0, [&world](std::uint32_t shard, std::uint64_t version) {
    world.steps(shard).skip_to(version);
  });
  world.join(0, 1, 0);
  Seat bad;
  bad.joined = world.find(0);
  const Member member = bad.joined.member;
  seats.add(std::move(bad), true);
  world.slot_of(0).published = 1;
  update_until(world, 0, member, Break::none);
  world.slot_of(0).published = 101;
  world.steps(1).fence(member);
  auto next = seats.make(Fd());
  cr_assert(next.ok());
  const auto from = std::chrono::steady_clock::now();
  seats.add(std::move(*next), true);
  cr_expect(std::chrono::steady_clock::now() - from < std::chrono::seconds(5));
  cr_expect_eq(seats.take_fenced(), std::vector<std::uint32_t>{0});
  cr_expect(seats.all().size() == 1 && seats.all().count(1) == 1);
  cr_expect_eq(world.control().current(1).version, world.control().current(0).version);
}

namespace {

/// The process that keeps descriptors for servers, as a thread.
class KeeperThread {
 public:
  KeeperThread() {
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    mine_.reset(ends[0]);
    owner.reset(ends[1]);
    thread_ = std::thread([this] {
      KeptDescriptors kept;
      pollfd ready = {mine_.get(), POLLIN, 0};
      while (poll(&ready, 1, -1) == 1 && kept.serve(mine_.get())) continue;
    });
  }
  ~KeeperThread() {
    shutdown(owner.get(), SHUT_RDWR);
    thread_.join();
  }
  void send(const KeeperMessage& message, int fd) const {
    const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
    cr_assert_eq(plain::send_packet(owner.get(), &part, 1, fd, 0), 0);
  }
  std::vector<std::uint64_t> keys() const {
    send({}, -1);
    std::vector<std::uint64_t> all;
    for (;;) {
      KeeperMessage message;
      const iovec part = {&message, sizeof message};
      std::size_t got = 0;
      cr_assert_eq(plain::receive_packet(owner.get(), &part, 1, &got, nullptr, 0), 0);
      if (message.word == KeeperWord::end) return all;
      all.push_back(message.key);
    }
  }

  Fd owner;

 private:
  Fd mine_;
  std::thread thread_;
};

}  // namespace

// Of a server that was killed while it handed a seat over, or took it back.
Test(ps_faults, a_part_of_a_seat_is_dropped, .timeout = 60) {
  const KeeperThread keeper;
  ps::SeatKeeper seats(Fd(dup(keeper.owner.get())));
  Geometry geometry;
  geometry.learners = 2;
  const auto memory = ServerMemory::make(geometry, {64});
  cr_assert(memory.ok());
  const ps::TensorSpec tensor{64};
  const Fd tensors(memfd_create("test", MFD_CLOEXEC));
  cr_assert_eq(write(tensors.get(), &tensor, sizeof tensor), ssize_t{sizeof tensor});
  cr_assert(seats.put_memory(memory->files(), tensors, 1, {}).ok());
  const auto whole = keeper.keys();
  const Identity who = {1, 1, 0};
  KeeperMessage part;
  part.word = KeeperWord::put;
  part.key = 20;
  part.length = sizeof who;
  std::memcpy(part.record, &who, sizeof who);
  keeper.send(part, tensors.get());
  const auto left = seats.get();
  cr_assert(left.ok() && *left);
  cr_expect((*left)->seats.empty());
  cr_expect(keeper.keys() == whole);
}
