// SPDX-License-Identifier: Apache-2.0
// The restores of several ranks of one node: what all of them want is read once.
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/agent/node_restore.h"
#include "checkpoint/system/block_workers.h"
#include "tests/unit/checkpoint/checkpoint_arrays.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

// A replicated array of many blocks and a sharded one.
std::vector<ArrayPart> model(std::uint32_t rank, std::uint32_t world) {
  return {{"all", f32_array({1000, 6000}, wire::kReplicated)},
          {"own", along({1000, 300}, 0, rank, world)}};
}

bellows::Placed placed_for(std::uint32_t rank, std::uint32_t world) {
  bellows::Placed out;
  if (!place_parts(model(rank, world), &out)) abort();
  return out;
}

// "" or what is wrong with what the rank got.
std::string check(NodeRestore& restore, std::uint32_t rank, std::uint32_t world) {
  const bellows::Placed placed = placed_for(rank, world);
  auto memory = restore.read(rank, placed);
  if (!memory) return memory.error().text;
  for (std::size_t i = 0; i < placed.parts.size(); ++i) {
    const auto wanted = bytes_of(placed.parts[i], rank);
    if (!std::equal(wanted.begin(), wanted.end(), (*memory)->data() + placed.offsets[i])) {
      return placed.parts[i].name + " is wrong";
    }
    if ((*memory)->data()[wire::flags_offset(placed.total) + i] != 1) return "a flag is missing";
  }
  return "";
}

// Criterion's macros keep pointers into what is gone by then.
void expect_whole(NodeRestore& restore, std::uint32_t rank, std::uint32_t world) {
  const std::string wrong = check(restore, rank, world);
  cr_expect(wrong.empty(), "rank %u: %s", rank, wrong.c_str());
}

struct Saved {
  Saved() : writer(ops, scratch.path(), "job.0.1", Retention{2}) {
    if (!writer.take_ownership() || !save_model(writer, ops, 10, 2, model)) abort();
  }
  // In the middle of each shard, which is the replicated array's.
  void damage() const {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      flip_byte(step_path(scratch.path(), 10) + "/" + shard_name(rank, 2), 3 << 20);
    }
  }

  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer;
};

}  // namespace

Test(node_restore, the_first_rank_reads_for_all, .timeout = 60) {
  Saved saved;
  NodeRestore restore(saved.scratch.path(), 10, 2);
  expect_whole(restore, 0, 2);
  cr_expect(restore.holds_memory_of(0) && !restore.holds_memory_of(1));
  // What is not read again can't be found damaged.
  saved.damage();
  expect_whole(restore, 1, 2);
  cr_expect(!restore.holds_memory_of(0));
  // All have it: nothing is kept in memory.
  cr_expect(has(check(restore, 0, 2), "is damaged"));
}

// Takes what was offered, as a rank does; how many bytes.
std::uint64_t take(const BlockOffers& offers, unsigned char* memory) {
  std::uint64_t bytes = 0, end = 0;
  for (const wire::Block& block : offers.blocks) {
    unsigned char* to = memory + block.to;
    cr_assert(block.to >= end &&
                  std::all_of(to, to + block.bytes, [](unsigned char b) { return b == 0; }),
              "this was read already");
    AlignedBuffer buffer(block.bytes);
    const auto got = pread(offers.sources.at(block.source).fd.get(), buffer.data(), block.bytes,
                           static_cast<off_t>(block.from));
    cr_assert(got == static_cast<ssize_t>(block.bytes));
    cr_assert(hash_block(buffer.data(), block.bytes, to) == block.digest);
    end = block.to + block.bytes;
    bytes += block.bytes;
  }
  return bytes;
}

Test(node_restore, blocks_are_left_to_a_rank_that_alone_wants_them, .timeout = 60) {
  Saved saved;
  for (const std::uint32_t world : {1, 2}) {
    NodeRestore restore(saved.scratch.path(), 10, world);
    const bellows::Placed placed = placed_for(0, world);
    ReadCount count;
    BlockOffers offers;
    auto memory = restore.read(0, placed, &count, &offers);
    cr_assert(memory);
    const std::uint64_t taken = take(offers, (*memory)->data());
    cr_expect(world == 1 ? taken >= 4 << 20 : taken == 0, "%lu bytes are left", taken);
    cr_expect(count.store >= placed.total && count.memory == 0);
    for (std::size_t i = 0; i < placed.parts.size(); ++i) {
      const auto wanted = bytes_of(placed.parts[i], 0);
      cr_expect(std::equal(wanted.begin(), wanted.end(), (*memory)->data() + placed.offsets[i]));
    }
  }
}

// One byte more or less than what is a block of its own, or can be digested.
std::vector<ArrayPart> odd_model(std::uint32_t rank, std::uint32_t world) {
  std::vector<ArrayPart> out = {{"own", along({1000, 300}, 0, rank, world)}};
  for (const std::uint64_t floats : {63ul, 1ul << 18, (1ul << 18) - 1, (1ul << 20) + 63,
                                     (1ul << 20) + 64, 3ul << 20, 1ul << 18, 1ul << 18}) {
    out.push_back({"a" + std::to_string(out.size()), f32_array({floats}, wire::kReplicated)});
  }
  return out;
}

// The memory of a node's job does not suffice for these arrays once more for each of its ranks.
Test(node_restore, a_rank_takes_what_the_first_has_read_without_memory_for_it, .timeout = 60) {
  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
  cr_assert(writer.take_ownership() && save_model(writer, ops, 10, 2, odd_model));
  constexpr std::uint32_t kWorld = 4;
  NodeRestore restore(scratch.path(), 10, kWorld);
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    bellows::Placed placed;
    cr_assert(place_parts(odd_model(rank, kWorld), &placed));
    BlockOffers offers;
    offers.most_sources = 1;
    // As for a CUDA device.
    const bool whole = rank == 3;
    auto memory = restore.read(rank, placed, nullptr, whole ? nullptr : &offers);
    cr_assert(memory);
    struct stat s;
    cr_assert(fstat((*memory)->fd(), &s) == 0);
    const std::uint64_t pages = static_cast<std::uint64_t>(s.st_blocks) * 512;
    const bool shares = rank == 1 || rank == 2;
    cr_expect(shares ? pages < 4 << 20 : pages > 20 << 20, "rank %u: %lu bytes", rank, pages);
    for (const OfferedSource& source : offers.sources) {
      if (source.kind != wire::Source::memory) continue;
      const Fd writable(open(("/proc/self/fd/" + std::to_string(source.fd.get())).c_str(), O_RDWR));
      cr_expect(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0) ==
                MAP_FAILED);
    }
    cr_expect((take(offers, (*memory)->data()) > 20 << 20) == shares);
    for (std::size_t i = 0; i < placed.parts.size(); ++i) {
      const auto wanted = bytes_of(placed.parts[i], rank);
      cr_expect(std::equal(wanted.begin(), wanted.end(), (*memory)->data() + placed.offsets[i]),
                "rank %u: %s is wrong", rank, placed.parts[i].name.c_str());
    }
  }
}

// Which is no reason to give the step up.
Test(node_restore, a_file_that_cannot_be_opened_now_is_not_damaged, .timeout = 60) {
  Saved saved;
  NodeRestore restore(saved.scratch.path(), 10, 2);
  {
    const OpenBlock block(step_path(saved.scratch.path(), 10) + "/" + shard_name(1, 2));
    auto refused = restore.read(0, placed_for(0, 2));
    cr_expect(!refused && refused.error().kind == ErrorKind::io);
  }
  expect_whole(restore, 0, 2);
}

Test(node_restore, ranks_that_ask_at_once, .timeout = 60) {
  Saved saved;
  constexpr std::uint32_t kWorld = 5;
  NodeRestore restore(saved.scratch.path(), 10, kWorld);
  std::vector<std::string> wrong(kWorld);
  std::vector<std::thread> ranks;
  for (std::uint32_t r = 0; r < kWorld; ++r) {
    ranks.emplace_back([&, r] { wrong[r] = check(restore, r, kWorld); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& text : wrong) cr_expect_str_eq(text.c_str(), "");
}

Test(node_restore, a_rank_that_is_alone_keeps_nothing, .timeout = 60) {
  Saved saved;
  NodeRestore restore(saved.scratch.path(), 10, 1);
  expect_whole(restore, 0, 1);
  saved.damage();
  cr_expect(has(check(restore, 0, 1), "is damaged"));
}

Test(node_restore, another_shape_is_refused_to_the_second_rank_too, .timeout = 60) {
  Saved saved;
  NodeRestore restore(saved.scratch.path(), 10, 2);
  expect_whole(restore, 0, 2);
  bellows::Placed other;
  cr_assert(place_parts({{"all", f32_array({6000, 1000}, wire::kReplicated)}}, &other));
  auto refused = restore.read(1, other);
  cr_expect(!refused && refused.error().kind == ErrorKind::invalid);
}
