// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <complex>
#include <csignal>
#include <fstream>

#include "launcher/ckpt/safetensors.h"
#include "tests/unit/launcher/ckpt_support.h"

using namespace bellows;
using namespace bellows::ckpt_test;

namespace {

std::string hex_of(const std::vector<unsigned char>& data) {
  return fmt::format("{:02x}", fmt::join(data, ""));
}

/// The file as the reader of the tests prints it.
Ran read_tensors(const std::string& path) {
  auto output = output_of({"python3", TENSOR_READER, path}, std::chrono::seconds(60), 64 << 20);
  if (!output) return {-1, "", output.error().text};
  return {output->exit.code(), output->out, output->err};
}

std::vector<unsigned char> bytes_up_to(std::size_t count) {
  std::vector<unsigned char> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<unsigned char>(7 * i + 1);
  return out;
}

/// One array of every type that the format has, of an odd length, and a scalar of each.
std::vector<WholeArray> every_type() {
  std::vector<WholeArray> out;
  for (std::uint32_t dtype = 1; dtype <= 16; ++dtype) {
    if (dtype == 15) continue;
    const std::uint64_t size = wire::element_bytes(dtype);
    const std::string name = dtype_name(dtype);
    auto data = bytes_up_to(3 * size);
    if (dtype == 13) data = {1, 0, 1};
    WholeArray array = make_array<unsigned char>("t/" + name, 9, {3 * size}, data);
    array.type.dtype = dtype;
    array.type.shape[0] = array.type.count = 3;
    out.push_back(array);
    array.name = "s/" + name;
    array.type.ndims = 0;
    array.type.count = 1;
    array.data.resize(size);
    out.push_back(array);
  }
  return out;
}

constexpr const char* kNames[] = {"",   "F16", "BF16", "F32", "F64",  "I8",  "I16",  "I32", "I64",
                                  "U8", "U16", "U32",  "U64", "BOOL", "C64", "C128", "U8"};

/// Counts its calls, fails them from one on, or raises SIGINT in one.
class TroubledOps : public FileOps {
 public:
  std::size_t calls = 0;
  std::size_t fail_at = SIZE_MAX;
  std::size_t interrupt_at = SIZE_MAX;

  Result<Fd> create(const std::string& path) override {
    if (trouble()) return Error{ErrorKind::io, "injected"};
    return FileOps::create(path);
  }
  Status write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
                  const std::string& path) override {
    if (trouble()) return Error{ErrorKind::io, "injected"};
    return FileOps::write_at(fd, data, bytes, offset, path);
  }
  Status sync(int fd, const std::string& path) override {
    return trouble() ? Error{ErrorKind::io, "injected"} : FileOps::sync(fd, path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return trouble() ? Error{ErrorKind::io, "injected"} : FileOps::rename(from, to);
  }
  Status sync_directory(const std::string& path) override {
    return trouble() ? Error{ErrorKind::io, "injected"} : FileOps::sync_directory(path);
  }

 private:
  bool trouble() {
    if (calls == interrupt_at) raise(SIGINT);
    return calls++ == fail_at;
  }
};

/// A step, laid out, and a file that is there already.
struct Target : Checkpoints {
  Target() {
    add(10, {count_up("w", {64, 64}, wire::kSharded), count_up("b", {64})});
    contents = std::make_unique<StepContents>(*StepContents::open({dir(), 10}));
    layout = *lay_out_tensors(*contents, {});
    std::filesystem::create_directory(place());
    std::ofstream(file()) << "old";
  }
  std::string place() const { return scratch.path() + "/out"; }
  std::string file() const { return place() + "/model.safetensors"; }
  bool only_the_old_one() const {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(place())) {
      files += entry.exists();
    }
    return files == 1 && std::filesystem::file_size(file()) == 3;
  }
  std::unique_ptr<StepContents> contents;
  TensorFile layout;
};

}  // namespace

Test(export, gives_another_reader_the_same_bytes, .timeout = 120) {
  Checkpoints c;
  auto arrays = every_type();
  arrays.push_back(count_up("columns", {5, 7, 3}, wire::kSharded, 1));
  arrays.push_back(count_up("rows", {9, 2}, wire::kSharded));
  arrays.push_back(count_up("nothing", {0, 4}));
  arrays.push_back(make_array<std::int32_t>("rng", 7, {2}, {5, 6}, wire::kPerRank));
  arrays.push_back(make_array<double>("rate", 4, {}, {0.125}, wire::kValue));
  c.add(40, arrays, 3);
  const std::string file = c.scratch.path() + "/out.safetensors";
  auto ran = ckpt({"export", "40", "-d", c.dir(), "--to", file});
  cr_assert(ran.status == 0, "%s", text_of(ran).c_str());
  cr_expect(ran.says("step 40, 37 arrays"), "%s", ran.out.c_str());
  auto read = read_tensors(file);
  cr_assert(read.status == 0, "%s", text_of(read).c_str());
  cr_expect(read.says("metadata step 40\n") && read.says("metadata world 3\n"));
  for (const WholeArray& array : arrays) {
    if (array.type.layout == wire::kPerRank) continue;
    const auto& shape = array.type.shape;
    const std::string line =
        fmt::format("{} {} [{}] {}\n", array.name, kNames[array.type.dtype],
                    fmt::join(shape, shape + array.type.ndims, ","), hex_of(array.data));
    cr_expect(read.says("\n" + line), "%s is not in %s", line.c_str(), read.out.c_str());
  }
  for (int rank = 0; rank < 3; ++rank) {
    cr_expect(read.says(fmt::format("\nrng.rank{} I32 [2] 0500000006000000\n", rank)));
  }
}

Test(export, names_what_the_format_cannot_hold, .timeout = 60) {
  Checkpoints c;
  c.add(10, {make_array<std::complex<double>>("z", 15, {1}, {{1, 2}}), count_up("w", {4})}, 1);
  const std::string file = c.scratch.path() + "/out.safetensors";
  auto ran = ckpt({"export", "10", "-d", c.dir(), "--to", file});
  cr_expect(ran.status == 2, "%s", text_of(ran).c_str());
  cr_expect(ran.complains("array z is c128[1]") && ran.complains("--except z"), "%s",
            ran.err.c_str());
  cr_expect(!std::filesystem::exists(file));
  ran = ckpt({"export", "10", "-d", c.dir(), "--to", file, "--except", "z"});
  cr_expect(ran.status == 0, "%s", text_of(ran).c_str());
  cr_expect(read_tensors(file).says("\nw F32 [4]"));
}

Test(export, prints_json, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("w", {4}), count_up("b", {2})}, 1);
  const std::string file = c.scratch.path() + "/out.safetensors";
  auto ran = ckpt({"export", "10", "-d", c.dir(), "--to", file, "--json"});
  cr_assert(ran.status == 0, "%s", text_of(ran).c_str());
  const auto json = ran.json();
  cr_expect(json["step"] == 10 && json["arrays"] == 2 && json["file"] == file, "%s",
            ran.out.c_str());
  cr_expect(json["bytes"] == 6 * sizeof(float), "%s", ran.out.c_str());
}

Test(export, refuses_two_tensors_of_one_name, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("x", {2}, wire::kPerRank), count_up("x.rank1", {4})});
  const std::string file = c.scratch.path() + "/out";
  auto ran = ckpt({"export", "10", "-d", c.dir(), "--to", file});
  cr_expect(ran.status == 2 && ran.complains("x.rank1"), "%s", text_of(ran).c_str());
}

Test(export, says_where_it_cannot_write, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("x", {2})});
  auto ran = ckpt({"export", "10", "-d", c.dir(), "--to", c.scratch.path() + "/no/such/file"});
  cr_expect(ran.status == 1 && ran.complains("/no/such/file"), "%s", text_of(ran).c_str());
}

Test(export, leaves_nothing_when_a_call_fails, .timeout = 60) {
  for (std::size_t n = 0;; ++n) {
    Target t;
    ProgressBar quiet(ProgressBar::Style::quiet);
    TroubledOps ops;
    ops.fail_at = n;
    auto status = write_tensors(ops, *t.contents, t.layout, t.file(), quiet);
    if (ops.calls <= n) {
      cr_expect(status.ok() && n == 6, "%zu calls", n);
      cr_expect(read_tensors(t.file()).status == 0);
      break;
    }
    cr_expect(!status.ok(), "call %zu fails without a word", n);
    // The directory is synced last, when the file is in its place already.
    if (n < 5) cr_expect(t.only_the_old_one(), "after call %zu", n);
  }
}

Test(export, leaves_nothing_when_interrupted, .timeout = 60) {
  note_interrupts();
  Target t;
  ProgressBar quiet(ProgressBar::Style::quiet);
  TroubledOps ops;
  ops.interrupt_at = 2;
  auto status = write_tensors(ops, *t.contents, t.layout, t.file(), quiet);
  cr_expect(!status.ok() && interrupted());
  cr_expect(t.only_the_old_one());
}
