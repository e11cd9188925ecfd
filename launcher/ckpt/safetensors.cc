// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/safetensors.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

namespace bellows {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBlock = 32 << 20;
/// Readers refuse a longer header.
constexpr std::size_t kMostHead = 100000000;

/// By enum bellows_dtype; null: the format has no such type. Opaque bytes are told by their use.
constexpr const char* kTensorTypes[] = {nullptr, "F16",  "BF16", "F32",   "F64", "I8",
                                        "I16",   "I32",  "I64",  "U8",    "U16", "U32",
                                        "U64",   "BOOL", "C64",  nullptr, "U8"};

const char* tensor_type(std::uint32_t dtype) {
  return dtype < std::size(kTensorTypes) ? kTensorTypes[dtype] : nullptr;
}

std::string tensor_name(const StoredArray& array) {
  if (!array.per_rank()) return array.name;
  return fmt::format("{}.rank{}", array.name, array.pieces.front().rank);
}

json metadata_of(const Manifest& manifest) {
  return {{"step", std::to_string(manifest.step)},
          {"world", std::to_string(manifest.world)},
          {"attempt", manifest.attempt},
          {"writer", "bellows"}};
}

Status check_array(const StoredArray& array, const json& head) {
  const std::string name = tensor_name(array);
  if (!tensor_type(array.type.dtype)) {
    return Error{ErrorKind::invalid,
                 fmt::format("array {} is {}, which the safetensors format does not have: leave it "
                             "out with --except {}",
                             name, array.type_text(), array.name)};
  }
  if (!head.contains(name)) return {};
  return Error{ErrorKind::invalid,
               fmt::format("two things in the file would have the name {}: leave one out with "
                           "--except {}",
                           name, array.name)};
}

/// Removes the file unless it was put in its place.
class HalfFile {
 public:
  HalfFile(FileOps& ops, const std::string& path)
      : ops_(ops), path_(fmt::format("{}.tmp-{}", path, getpid())) {}
  HalfFile(const HalfFile&) = delete;
  HalfFile& operator=(const HalfFile&) = delete;
  ~HalfFile() {
    if (!placed_) (void)ops_.remove_file(path_);
  }
  const std::string& path() const { return path_; }
  Status place(const std::string& to) {
    auto status = ops_.rename(path_, to);
    placed_ = status.ok();
    return status;
  }

 private:
  FileOps& ops_;
  std::string path_;
  bool placed_ = false;
};

}  // namespace

Result<TensorFile> lay_out_tensors(const StepContents& contents,
                                   const std::set<std::string>& except) {
  TensorFile out;
  for (const StoredArray& array : contents.arrays()) {
    if (!except.contains(array.name)) out.order.push_back(&array);
  }
  std::stable_sort(out.order.begin(), out.order.end(), [](const auto* a, const auto* b) {
    return wire::element_bytes(a->type.dtype) > wire::element_bytes(b->type.dtype);
  });
  json head = {{"__metadata__", metadata_of(contents.manifest())}};
  for (const StoredArray* array : out.order) {
    if (auto status = check_array(*array, head); !status) return status.error();
    const wire::Array& a = array->type;
    head[tensor_name(*array)] = {{"dtype", tensor_type(a.dtype)},
                                 {"shape", std::vector(a.shape, a.shape + a.ndims)},
                                 {"data_offsets", {out.bytes, out.bytes + array->bytes()}}};
    out.bytes += array->bytes();
  }
  std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMostHead) {
    return Error{ErrorKind::invalid,
                 fmt::format("the names of the {} arrays take {} bytes, more than a safetensors "
                             "file may have: leave some out with --except",
                             out.order.size(), text.size())};
  }
  for (int i = 0; i < 8; ++i) out.head += static_cast<char>(text.size() >> (8 * i) & 0xff);
  out.head += text;
  return out;
}

Status write_tensors(FileOps& ops, const StepContents& contents, const TensorFile& file,
                     const std::string& path, ProgressBar& progress) {
  HalfFile half(ops, path);
  auto fd = ops.create(half.path());
  if (!fd) return fd.error();
  progress.begin("writing " + std::filesystem::path(path).filename().string(), file.bytes);
  auto status = ops.write_at(fd->get(), file.head.data(), file.head.size(), 0, half.path());
  const auto block = std::make_unique<unsigned char[]>(kBlock);
  std::uint64_t offset = file.head.size();
  for (const auto& slices : cut_into_batches(file.order, kBlock)) {
    const std::uint64_t bytes = slices.back().offset + slices.back().bytes();
    if (status) status = contents.read(slices, block.get());
    if (status) status = ops.write_at(fd->get(), block.get(), bytes, offset, half.path());
    if (status) status = progress.add(bytes);
    if (!status) return status;
    offset += bytes;
  }
  if (status) status = ops.sync(fd->get(), half.path());
  if (status) status = progress.add(0);
  if (status) status = half.place(path);
  const std::string dir = std::filesystem::absolute(path).parent_path().string();
  return status ? ops.sync_directory(dir) : status;
}

}  // namespace bellows
