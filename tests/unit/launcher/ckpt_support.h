// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/format/shard_file.h"
#include "checkpoint/store/store_writer.h"
#include "launcher/base/program_output.h"
#include "tests/unit/support/scratch_dir.h"

// What the tests of `bellows ckpt` share: steps written by the library, runs of the program.
namespace bellows::ckpt_test {

/// A whole array; the values in row-major order.
struct WholeArray {
  std::string name;
  wire::Array type;
  std::vector<unsigned char> data;
};

template <typename T>
WholeArray make_array(const std::string& name, std::uint32_t dtype,
                      const std::vector<std::uint64_t>& shape, const std::vector<T>& values,
                      std::uint32_t layout = wire::kReplicated, std::uint32_t axis = 0) {
  WholeArray out;
  out.name = name;
  out.type.dtype = dtype;
  out.type.ndims = static_cast<std::uint32_t>(shape.size());
  out.type.layout = layout;
  out.type.axis = axis;
  std::copy(shape.begin(), shape.end(), out.type.shape);
  out.type.count = wire::axis_extent(out.type);
  out.data.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(out.data.data(), values.data(), out.data.size());
  std::uint64_t bytes = 0;
  if (!wire::held_bytes(out.type, &bytes) || bytes != out.data.size()) abort();
  return out;
}

/// f32 with the values 0, 1, 2, ...
inline WholeArray count_up(const std::string& name, const std::vector<std::uint64_t>& shape,
                           std::uint32_t layout = wire::kReplicated, std::uint32_t axis = 0) {
  std::uint64_t elements = 1;
  for (std::uint64_t extent : shape) elements *= extent;
  std::vector<float> values(elements);
  for (std::uint64_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i);
  return make_array(name, 3, shape, values, layout, axis);
}

/// The indices [first, first + count) of the axis, as a rank holds them.
inline std::vector<unsigned char> part_of(const WholeArray& whole, std::uint64_t first,
                                          std::uint64_t count) {
  const wire::Array& a = whole.type;
  std::uint64_t index = wire::element_bytes(a.dtype);
  for (std::uint32_t i = a.axis + 1; i < a.ndims; ++i) index *= a.shape[i];
  std::vector<unsigned char> out;
  const std::uint64_t line = wire::axis_extent(a) * index;
  for (std::uint64_t at = 0; at < whole.data.size(); at += line) {
    const unsigned char* from = whole.data.data() + at + first * index;
    out.insert(out.end(), from, from + count * index);
  }
  return out;
}

/// Saves a step. Rank 0 has nothing of sharded arrays when there are three ranks or more.
inline Status save(StoreWriter& writer, FileOps& ops, std::uint64_t step, std::uint32_t world,
                   const std::vector<WholeArray>& arrays) {
  if (auto status = writer.begin_step(step); !status) return status;
  const std::atomic<bool> cancelled{false};
  std::vector<ShardFile> shards;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.rank = rank;
    snapshot.world = world;
    std::vector<unsigned char> data;
    for (const WholeArray& array : arrays) {
      ArrayPart part{array.name, array.type};
      if (array.type.layout == wire::kSharded) {
        const std::uint32_t skip = world >= 3 ? 1 : 0;
        const std::uint64_t extent = wire::axis_extent(array.type);
        const auto begin = [&](std::uint32_t r) {
          return r <= skip ? 0 : wire::share_begin(extent, r - skip, world - skip);
        };
        part.array.first = rank < skip ? 0 : begin(rank);
        part.array.count = rank < skip ? 0 : begin(rank + 1) - part.array.first;
      }
      if (!wire::stored_part(part.array, array.name.data(), array.name.size(), rank, world,
                             &part.array.first, &part.array.count)) {
        continue;
      }
      const auto bytes = part_of(array, part.array.first, part.array.count);
      snapshot.parts.push_back(part);
      snapshot.offsets.push_back(data.size());
      data.insert(data.end(), bytes.begin(), bytes.end());
      data.resize((data.size() + 63) / 64 * 64);
    }
    snapshot.data = data.data();
    auto shard = write_shard(ops, writer.shard_path(step, rank, world), snapshot, cancelled);
    if (!shard) return shard.error();
    shards.push_back(*shard);
  }
  auto done = writer.commit(step, shards);
  return done ? Status() : Status(done.error());
}

/// A checkpoint directory to which steps are saved.
struct Checkpoints {
  explicit Checkpoints(std::uint32_t keep = 100) : retention{keep} { begin(); }
  std::string dir() const { return scratch.path() + "/checkpoints"; }
  /// A program of its own, which has ended when this returns.
  void add(std::uint64_t step, const std::vector<WholeArray>& arrays, std::uint32_t world = 2) {
    auto writer = begin();
    if (auto status = save(writer, ops, step, world, arrays); !status) {
      std::fprintf(stderr, "%s\n", status.error().text.c_str());
      abort();
    }
  }

  ScratchDir scratch;
  FileOps ops;
  Retention retention;

 private:
  StoreWriter begin() {
    StoreWriter writer(ops, dir(), "node.1.1", retention);
    if (!writer.take_ownership()) abort();
    return writer;
  }
};

/// What a run of `bellows ARGUMENT...` did.
struct Ran {
  int status = -1;
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
  bool says(const std::string& text) const { return out.find(text) != std::string::npos; }
  bool complains(const std::string& text) const { return err.find(text) != std::string::npos; }
};

inline Ran bellows_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BELLOWS);
  auto output = output_of(arguments, std::chrono::seconds(60), 64 << 20);
  if (!output) return {-1, "", output.error().text};
  return {output->exit.code(), output->out, output->err};
}

inline Ran ckpt(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ckpt");
  return bellows_with(std::move(arguments));
}

/// Of a failed assertion.
inline std::string text_of(const Ran& ran) {
  return "exit status " + std::to_string(ran.status) + "\n" + ran.out + ran.err;
}

}  // namespace bellows::ckpt_test
