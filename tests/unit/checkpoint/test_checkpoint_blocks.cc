// SPDX-License-Identifier: Apache-2.0
// Blocks: written in any way, failing anywhere, damaged anywhere; restored at any number of ranks.
#include <criterion/criterion.h>
#include <sys/mman.h>

#include <fstream>

#include "checkpoint/format/block_writer.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_arrays.h"
#include "tests/unit/checkpoint/failing_ops.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

/// One array of several blocks and one that is small; both ranks have an uneven part.
std::vector<ArrayPart> wide(std::uint32_t rank, std::uint32_t world) {
  return {{"wide", along({300, 20011}, 0, rank, world)}, {"small", along({7}, 0, rank, world)}};
}

/// Arrays along each axis, none, spread and per rank; `turn`: along which axis "turned" lies.
std::vector<ArrayPart> resized(std::uint32_t rank, std::uint32_t world, std::uint32_t turn) {
  std::vector<ArrayPart> out = {
      {"rows", along({37, 3}, 0, rank, world)},
      {"columns", along({4, 29}, 1, rank, world)},
      {"depth", along({3, 2, 31}, 2, rank, world)},
      {"middle", along({5, 23, 3}, 1, rank, world)},
      {"none", along({0, 4}, 0, rank, world)},
      {"hollow", along({5, 0, 4}, 0, rank, world)},
      {"turned", along({11, 13, 17}, turn, rank, world)},
      {"spread", f32_array({1031, 255}, wire::kReplicated)},
      {"scalar", f32_array({}, wire::kReplicated)},
      {"epoch", f32_array({2}, wire::kValue)},
      {"rng", f32_array({6}, wire::kPerRank)},
      {"odd", f32_array({3 + rank}, wire::kPerRank)},
  };
  return out;
}

struct Blocks {
  explicit Blocks(const std::string& dir) : writer(ops, dir, "job.0.1", Retention{9}) {
    if (!writer.take_ownership()) abort();
  }
  FileOps ops;
  StoreWriter writer;
};

/// Refuses to write past the page cache: at once, or in the middle of the file.
class NoDirectOps : public FileOps {
 public:
  explicit NoDirectOps(bool at_once) : at_once_(at_once) {}
  Result<Fd> open_direct(const std::string& path) override {
    if (at_once_) return Fd();
    return FileOps::open_direct(path);
  }
  Result<bool> write_direct(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                            const std::string& path) override {
    if (offset > 0) return false;
    return FileOps::write_direct(fd, data, bytes, offset, path);
  }

 private:
  bool at_once_;
};

std::string contents(const std::string& path) { return *read_file(path, 1 << 30); }

}  // namespace

Test(blocks, a_file_is_the_same_however_it_is_written, .timeout = 60) {
  ScratchDir scratch;
  const std::uint64_t block = 1 << 20;
  Placed data({{"a", f32_array({700001}, wire::kReplicated)},
               {"b", f32_array({5}, wire::kReplicated)},
               {"c", f32_array({400003}, wire::kReplicated)}});
  data.fill(0);
  // Aligned and not, as they follow each other in the file.
  std::vector<FilePiece> pieces;
  std::uint64_t size = 0;
  std::string expected;
  for (std::size_t i = 0; i < data.parts.size(); ++i) {
    const unsigned char* from = data.memory.get() + data.offsets[i];
    pieces.push_back({size, data.parts[i].bytes(), from});
    expected.append(reinterpret_cast<const char*>(from), data.parts[i].bytes());
    size += data.parts[i].bytes();
  }
  FileOps plain;
  NoDirectOps never(true), early(false);
  const std::atomic<bool> cancelled{false};
  for (FileOps* ops : {&plain, static_cast<FileOps*>(&never), static_cast<FileOps*>(&early)}) {
    const std::string path = scratch.path() + "/file";
    auto digests = write_blocks(*ops, path, pieces, size, block, cancelled);
    cr_assert(digests.ok(), "%s", digests.error().text.c_str());
    cr_expect(contents(path) == expected);
    cr_assert(digests->size() == (size + block - 1) / block);
    for (std::uint64_t b = 0; b < digests->size(); ++b) {
      cr_expect(hex_of((*digests)[b]) == digest_of(expected.substr(b * block, block)));
    }
  }
}

Test(blocks, a_failure_at_any_call_is_told_and_leaves_no_file, .timeout = 120) {
  for (std::size_t n = 0;; ++n) {
    ScratchDir scratch;
    FailingOps ops;
    StoreWriter writer(ops, scratch.path(), "job.0.1", Retention{2});
    cr_assert(writer.take_ownership().ok() && writer.begin_step(1).ok());
    ops.fail_only = ops.log.size() + n;
    const std::size_t begin = ops.log.size();
    auto shard = write_model(writer, ops, 1, 0, 2, wide);
    if (shard && ops.log.size() - begin <= n) break;
    cr_assert(!shard.ok(), "call %zu failed unnoticed", n);
    cr_expect(has(shard.error().text, "injected"), "%s", shard.error().text.c_str());
    auto names = list_names(scratch.path() + "/.tmp-1-job.0.1");
    for (const std::string& name : *names) cr_expect(name[0] == '.', "%s is left", name.c_str());
  }
}

Test(blocks, calling_off_is_seen_between_blocks, .timeout = 30) {
  ScratchDir scratch;
  FileOps ops;
  const std::vector<unsigned char> data(3 << 20);
  const std::atomic<bool> cancelled{true};
  auto written = write_blocks(ops, scratch.path() + "/file", {{0, data.size(), data.data()}},
                              data.size(), 1 << 20, cancelled);
  cr_expect(!written.ok() && written.error().kind == ErrorKind::unavailable);
}

Test(blocks, damage_in_every_block_of_every_file_is_found, .timeout = 180) {
  ScratchDir scratch;
  Blocks blocks(scratch.path());
  cr_assert(save_model(blocks.writer, blocks.ops, 10, 2, wide).ok());
  cr_assert(save_model(blocks.writer, blocks.ops, 20, 2, wide).ok());
  const auto falls_back = [&](const std::string& file) {
    auto newest = newest_step(scratch.path());
    cr_assert(newest.ok() && newest->step == 10u && newest->skipped.size() == 1, "%s",
              file.c_str());
    cr_expect(has(newest->skipped[0].error, file), "%s", newest->skipped[0].error.c_str());
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::string file = step_path(scratch.path(), 20) + "/" + shard_name(rank, 2);
    const std::string index = step_path(scratch.path(), 20) + "/" + index_name(rank, 2);
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
    cr_assert(size > 2 * static_cast<std::int64_t>(ShardIndex::kBlock));
    for (std::int64_t at = 0; at < size; at += ShardIndex::kBlock) {
      const std::int64_t end = std::min<std::int64_t>(at + ShardIndex::kBlock, size);
      for (std::int64_t byte : {at, end - 1}) {
        flip_byte(file, byte);
        falls_back(file);
        flip_byte(file, byte);
      }
    }
    const auto text = contents(index);
    for (std::size_t at = 0; at < text.size(); ++at) {
      flip_byte(index, static_cast<std::int64_t>(at));
      auto verified = verify_step(scratch.path(), 20);
      cr_assert(!verified.ok(), "byte %zu of an index changed unnoticed", at);
      cr_expect(has(verified.error().text, index), "%s", verified.error().text.c_str());
      flip_byte(index, static_cast<std::int64_t>(at));
    }
    std::filesystem::resize_file(index, text.size() - 1);
    falls_back(index);
    std::filesystem::remove(index);
    falls_back(index);
    std::ofstream(index) << text;
  }
  cr_expect(verify_step(scratch.path(), 20).ok());
}

Test(blocks, damage_is_found_by_the_restore_itself, .timeout = 60) {
  ScratchDir scratch;
  Blocks blocks(scratch.path());
  cr_assert(save_model(blocks.writer, blocks.ops, 10, 2, wide).ok());
  auto reader = open_step(scratch.path(), 10);
  cr_assert(reader.ok() && restore_model(**reader, 0, 2, wide).empty());
  const std::string file = step_path(scratch.path(), 10) + "/" + shard_name(0, 2);
  flip_byte(file, 2 * ShardIndex::kBlock + 77);
  cr_expect(has(restore_model(**reader, 0, 2, wide), file + " is damaged: the bytes from 8388608"));
  // What has nothing from there is whole.
  cr_expect(restore_model(**reader, 1, 2, wide).empty());
}

Test(blocks, any_number_of_ranks_restores_what_any_other_saved, .timeout = 300) {
  ScratchDir scratch;
  Blocks blocks(scratch.path());
  for (std::uint32_t saved = 1; saved <= 8; ++saved) {
    const auto model = [&](std::uint32_t r, std::uint32_t w) { return resized(r, w, saved % 3); };
    const Status status = save_model(blocks.writer, blocks.ops, saved, saved, model);
    cr_assert(status.ok(), "%s", why(status).c_str());
    auto reader = open_step(scratch.path(), saved);
    cr_assert(reader.ok(), "%s", reader.error().text.c_str());
    for (std::uint32_t world = 1; world <= 8; ++world) {
      const auto asked = [&](std::uint32_t r, std::uint32_t w) { return resized(r, w, world % 3); };
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        std::vector<std::size_t> kept;
        const std::string wrong = restore_model(**reader, rank, world, asked, &kept);
        cr_assert(wrong.empty(), "%u to %u, rank %u: %s", saved, world, rank, wrong.c_str());
        // Ranks that the saving world did not have keep their own two arrays.
        cr_expect(kept ==
                  (rank < saved ? std::vector<std::size_t>{} : std::vector<std::size_t>{10, 11}));
      }
    }
  }
}

Test(blocks, a_per_rank_array_of_another_shape_keeps_what_it_has, .timeout = 30) {
  ScratchDir scratch;
  Blocks blocks(scratch.path());
  const auto sized = [](std::uint64_t extent) {
    return [extent](std::uint32_t, std::uint32_t) {
      return std::vector<ArrayPart>{{"rng", f32_array({extent}, wire::kPerRank)}};
    };
  };
  cr_assert(save_model(blocks.writer, blocks.ops, 1, 2, sized(4)).ok());
  auto reader = open_step(scratch.path(), 1);
  cr_assert(reader.ok());
  Placed placed(sized(5)(0, 2));
  auto read = (*reader)->read(placed.wanted(1));
  cr_assert(read.ok() && *read == std::vector<std::size_t>{0});
  for (std::uint64_t i = 0; i < 20; ++i) cr_expect(placed.memory.get()[i] == 0xee);
}

Test(blocks, more_than_two_gibibytes_come_back, .timeout = 300) {
  ScratchDir scratch;
  Blocks blocks(scratch.path());
  const std::uint64_t bytes = (std::uint64_t{1} << 31) + (1 << 20) + 12345;
  // Untouched pages cost no memory.
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(map != MAP_FAILED);
  auto* data = static_cast<unsigned char*>(map);
  const std::uint64_t marked[] = {0, (1u << 31) - 1, 1u << 31, bytes - 1};
  for (std::uint64_t at : marked) data[at] = static_cast<unsigned char>(at % 251 + 1);
  ArrayPart part{"huge", f32_array({bytes}, wire::kSharded, 0, bytes)};
  part.array.dtype = dtype_of_name("u8");
  cr_assert(blocks.writer.begin_step(1).ok());
  std::atomic<bool> cancelled{false};
  auto shard = write_shard(blocks.ops, blocks.writer.shard_path(1, 0, 1),
                           {1, 0, 1, {part}, {0}, data}, cancelled);
  cr_assert(shard.ok(), "%s", shard.error().text.c_str());
  auto done = blocks.writer.commit(1, {*shard});
  cr_assert(done.ok() && done->empty());
  auto reader = open_step(scratch.path(), 1);
  cr_assert(reader.ok(), "%s", reader.error().text.c_str());
  for (std::uint64_t at : marked) {
    part.array.first = at < 5 ? 0 : at - 5;
    part.array.count = std::min<std::uint64_t>(10, bytes - part.array.first);
    unsigned char got[10];
    cr_assert((*reader)->read({0, {part}, {0}, got}).ok());
    cr_expect(memcmp(got, data + part.array.first, part.array.count) == 0);
  }
  munmap(map, bytes);
}
