// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <random>
#include <thread>

#include "checkpoint/store/store.h"
#include "launcher/ckpt/diff.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/text.h"
#include "tests/unit/launcher/ckpt_support.h"

using namespace bellows;
using namespace bellows::ckpt_test;

namespace {

template <typename T>
ElementDifference compare(Dtype dtype, const std::vector<T>& a, const std::vector<T>& b) {
  ElementDifference out;
  out.add(dtype, reinterpret_cast<const unsigned char*>(a.data()),
          reinterpret_cast<const unsigned char*>(b.data()),
          a.size() * sizeof(T) / wire::element_bytes(static_cast<std::uint32_t>(dtype)));
  return out;
}

bool about(long double value, double wanted) {
  return std::abs(value - wanted) <= 1e-6 * std::abs(wanted);
}

void expect_difference(const ElementDifference& found, std::uint64_t differing,
                       std::uint64_t not_finite, double absolute, double relative) {
  cr_expect(found.differing == differing, "%lu differ", found.differing);
  cr_expect(found.not_finite == not_finite, "%lu are not finite", found.not_finite);
  cr_expect(about(found.largest_absolute, absolute), "apart by %Lg", found.largest_absolute);
  cr_expect(about(found.largest_relative, relative), "apart by %Lg", found.largest_relative);
}

/// Reads an array by slices of `count` elements and compares it to what was saved.
bool reads_back(const StepContents& contents, const StoredArray& array, const WholeArray& saved,
                std::uint64_t count) {
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  for (std::uint64_t first = 0; first < array.elements(); ++first) {
    const std::uint64_t now = std::min(count, array.elements() - first);
    std::vector<unsigned char> data(now * size + 1, 0xee);
    if (!contents.read({{&array, first, now, 0}}, data.data()).ok()) return false;
    if (std::memcmp(data.data(), saved.data.data() + first * size, now * size) != 0) return false;
    if (data.back() != 0xee) return false;
  }
  return true;
}

/// Runs bellows with a terminal as its standard error; what it wrote there.
std::string on_terminal(std::vector<std::string> arguments) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) abort();
  const std::string slave = ptsname(master);
  const pid_t pid = fork();
  if (pid == 0) {
    const int fd = open(slave.c_str(), O_RDWR | O_NOCTTY);
    dup2(fd, STDERR_FILENO);
    dup2(fd, STDOUT_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(BELLOWS, argv.data());
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  // Fails with EIO when the last writer has gone.
  for (ssize_t got; (got = read(master, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  waitpid(pid, nullptr, 0);
  close(master);
  return text;
}

}  // namespace

Test(values, of_two_byte_floats_are_exact) {
  const std::vector<std::pair<std::uint16_t, float>> f16 = {{0x0000, 0},
                                                            {0x3c00, 1},
                                                            {0xc000, -2},
                                                            {0x7bff, 65504},
                                                            {0x0400, 6.103515625e-05f},
                                                            {0x0001, 5.9604644775390625e-08f},
                                                            {0x3555, 0.333251953125f}};
  for (const auto& [bits, value] : f16) cr_expect(float_of_f16(bits) == value, "%04x", bits);
  cr_expect(std::isinf(float_of_f16(0xfc00)) && float_of_f16(0xfc00) < 0);
  cr_expect(std::isnan(float_of_f16(0x7c01)) && std::signbit(float_of_f16(0x8000)));
  for (std::uint16_t bits = 1; bits < 0x7c00; ++bits) {
    cr_assert(float_of_f16(bits) > float_of_f16(static_cast<std::uint16_t>(bits - 1)));
  }
  cr_expect(float_of_bf16(0x3f80) == 1 && float_of_bf16(0xc040) == -3);
  cr_expect(std::isnan(float_of_bf16(0x7fc0)));
}

Test(values, are_json_of_their_kind) {
  const auto json = [](Dtype dtype, auto value) {
    return json_of_element(dtype, reinterpret_cast<const unsigned char*>(&value)).dump();
  };
  cr_expect(json(Dtype::u64, UINT64_MAX) == "18446744073709551615");
  cr_expect(json(Dtype::i8, std::int8_t(-3)) == "-3" && json(Dtype::boolean, char(1)) == "true");
  cr_expect(json(Dtype::f32, NAN) == "\"NaN\"" && json(Dtype::f64, -HUGE_VAL) == "\"-Infinity\"");
  cr_expect(json(Dtype::c64, std::complex<float>(1, -2)) == "[1.0,-2.0]");
  cr_expect(json(Dtype::bf16, std::uint16_t(0x3fc0)) == "1.5");
}

Test(difference, is_measured_for_every_type) {
  expect_difference(compare<float>(Dtype::f32, {1, 2, 3}, {1, 2, 3}), 0, 0, 0, 0);
  expect_difference(compare<float>(Dtype::f32, {1, 2, 4}, {1, 1, 3}), 2, 0, 1, 0.5);
  expect_difference(compare<double>(Dtype::f64, {1e300, 0}, {-1e300, 1e-9}), 2, 0, 2e300, 2);
  expect_difference(compare<float>(Dtype::f32, {NAN, 1, INFINITY, NAN}, {NAN, NAN, 1, 5}), 3, 3, 0,
                    0);
  expect_difference(compare<float>(Dtype::f32, {0.0f}, {-0.0f}), 1, 0, 0, 0);
  expect_difference(compare<std::uint16_t>(Dtype::f16, {0x3c00}, {0x4000}), 1, 0, 1, 0.5);
  expect_difference(compare<std::uint16_t>(Dtype::bf16, {0x3f80, 0x7f80}, {0x4000, 0}), 2, 1, 1,
                    0.5);
  expect_difference(compare<std::complex<float>>(Dtype::c64, {{3, 4}}, {{0, 0}}), 1, 0, 5, 1);
  expect_difference(compare<std::complex<double>>(Dtype::c128, {{0, 0}}, {{0, NAN}}), 1, 1, 0, 0);
  expect_difference(compare<unsigned char>(Dtype::boolean, {1, 0}, {0, 0}), 1, 0, 1, 1);
  expect_difference(compare<std::int8_t>(Dtype::i8, {-128}, {127}), 1, 0, 255, 255.0 / 128);
  const auto widest = compare<std::int64_t>(Dtype::i64, {INT64_MIN}, {INT64_MAX});
  cr_expect(static_cast<std::uint64_t>(widest.largest_absolute) == UINT64_MAX, "%Lf",
            widest.largest_absolute);
  const auto nearest = compare<std::uint64_t>(Dtype::u64, {UINT64_MAX}, {UINT64_MAX - 1});
  cr_expect(nearest.largest_absolute == 1, "%Lf", nearest.largest_absolute);
}

Test(contents, come_whole_however_they_are_cut, .timeout = 120) {
  Checkpoints c;
  const std::vector<WholeArray> arrays = {count_up("axis0", {7, 3}, wire::kSharded),
                                          count_up("axis1", {3, 7}, wire::kSharded, 1),
                                          count_up("axis2", {2, 3, 5}, wire::kSharded, 2),
                                          count_up("middle", {2, 5, 3}, wire::kSharded, 1),
                                          count_up("replicated", {4, 4}),
                                          count_up("scalar", {}),
                                          count_up("nothing", {3, 0}),
                                          count_up("value", {6}, wire::kValue)};
  for (std::uint32_t world : {1u, 2u, 4u}) {
    c.add(world, arrays, world);
    auto contents = StepContents::open({c.dir(), world});
    cr_assert(contents.ok(), "%s", contents.error().text.c_str());
    for (const WholeArray& saved : arrays) {
      const auto found =
          std::find_if(contents->arrays().begin(), contents->arrays().end(),
                       [&](const StoredArray& array) { return array.name == saved.name; });
      cr_assert(found != contents->arrays().end());
      for (std::uint64_t count = 1; count <= found->elements(); ++count) {
        cr_assert(reads_back(*contents, *found, saved, count), "%s by %lu, world %u",
                  saved.name.c_str(), count, world);
      }
    }
  }
}

Test(contents, are_cut_without_holes, .timeout = 30) {
  StoredArray big, small, none;
  big.type = count_up("", {100}).type;
  small.type = count_up("", {3}).type;
  none.type = count_up("", {0}).type;
  for (std::uint64_t budget : {4ul, 5ul, 12ul, 100ul, 1000ul}) {
    std::uint64_t elements = 0;
    for (const auto& batch : cut_into_batches({&small, &none, &big, &small}, budget)) {
      std::uint64_t used = 0;
      for (const Slice& slice : batch) {
        cr_expect(slice.offset == used && slice.count > 0);
        used += slice.bytes();
        elements += slice.count;
      }
      cr_expect(used <= budget && used > 0);
    }
    cr_expect(elements == 106, "%lu with %lu", elements, budget);
  }
}

Test(contents, that_are_damaged_are_never_given, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("w", {4096}, wire::kSharded)});
  auto contents = StepContents::open({c.dir(), 10});
  cr_assert(contents.ok());
  const std::string path = step_path(c.dir(), 10) + "/" + contents->manifest().shards[1].file;
  const StoredArray& w = contents->arrays().front();
  const int fd = open(path.c_str(), O_RDWR);
  const auto at = static_cast<off_t>(w.pieces[1].offset + 5);
  char byte = 0;
  cr_assert(pread(fd, &byte, 1, at) == 1);
  byte = static_cast<char>(byte ^ 1);
  cr_assert(pwrite(fd, &byte, 1, at) == 1);
  close(fd);
  std::vector<unsigned char> data(w.bytes());
  auto status = contents->read({{&w, 0, w.elements(), 0}}, data.data());
  cr_expect(!status.ok() && status.error().kind == ErrorKind::corrupt);
  const std::string file = c.scratch.path() + "/out";
  auto ran = ckpt({"export", "10", "-d", c.dir(), "--to", file});
  cr_expect(ran.status == 1 && ran.complains(path), "%s", text_of(ran).c_str());
  cr_expect(!std::filesystem::exists(file));
  ran = ckpt({"diff", "10", "10", "-d", c.dir()});
  cr_expect(ran.status == 2 && ran.complains(path), "%s", text_of(ran).c_str());
}

Test(diff, is_silent_on_who_stored_what, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("w", {8, 6}, wire::kSharded), count_up("b", {5})}, 4);
  c.add(20, {count_up("w", {8, 6}, wire::kSharded, 1), count_up("b", {5})}, 3);
  c.add(30, {count_up("w", {8, 6}), count_up("b", {5}, wire::kValue)}, 1);
  for (const char* other : {"20", "30"}) {
    auto ran = ckpt({"diff", "10", other, "-d", c.dir()});
    cr_expect(ran.status == 0 && ran.says("2 of 2 arrays are equal"), "%s", text_of(ran).c_str());
  }
}

Test(diff, tells_every_kind_of_difference, .timeout = 60) {
  Checkpoints c;
  c.add(10, {make_array<float>("w", 3, {4}, {1, 2, 3, 4}, wire::kSharded), count_up("same", {3}),
             count_up("only/a", {2}), count_up("shape", {2, 3}),
             make_array<std::int64_t>("n", 8, {}, {INT64_MIN}),
             make_array<std::int32_t>("rng", 7, {1}, {1}, wire::kPerRank)});
  c.add(20, {make_array<float>("w", 3, {4}, {1, 2.5, 3, NAN}, wire::kSharded),
             count_up("same", {3}), count_up("only/b", {2}), count_up("shape", {3, 2}),
             make_array<std::int64_t>("n", 8, {}, {INT64_MAX}),
             make_array<std::int32_t>("rng", 7, {1}, {1}, wire::kPerRank)});
  auto ran = ckpt({"diff", "10", "20", "-d", c.dir()});
  cr_expect(ran.status == 1, "%s", text_of(ran).c_str());
  for (const char* line :
       {"w: f32[4]: 2 of 4 elements differ, by at most 0.5, relative 0.2, 1 of them not finite\n",
        "only/a: only in the first: f32[2]\n", "only/b: only in the second: f32[2]\n",
        "shape: f32[2,3] became f32[3,2]\n",
        "n: i64[]: 1 of 1 elements differ, by at most 18446744073709551615, relative 2\n",
        "3 of 8 arrays are equal\n"}) {
    cr_expect(ran.says(line), "%s is not in %s", line, ran.out.c_str());
  }
  ran = ckpt({"diff", "10", "20", "-d", c.dir(), "--json"});
  cr_expect(ran.status == 1);
  const auto json = ran.json();
  cr_expect(json["equal"] == false && json["a"]["step"] == 10 && json["b"]["step"] == 20);
  for (const auto& array : json["arrays"]) {
    if (array["name"] == "n") cr_expect(array["largest_absolute"] == UINT64_MAX);
    if (array["name"] == "w") cr_expect(array["differing"] == 2 && array["not_finite"] == 1);
    if (array["name"] == "only/a") cr_expect(array["b"].is_null());
    if (array["name"] == "rng of rank 1") cr_expect(array["equal"] == true);
  }
  cr_expect(ckpt({"diff", "10", "99", "-d", c.dir()}).status == 2);
}

Test(diff, of_a_world_that_grew_names_the_rank, .timeout = 60) {
  Checkpoints c;
  const auto rng = make_array<std::int32_t>("rng", 7, {1}, {1}, wire::kPerRank);
  c.add(10, {rng}, 1);
  c.add(20, {rng}, 2);
  auto ran = ckpt({"diff", "10", "20", "-d", c.dir()});
  cr_expect(ran.status == 1 && ran.says("rng of rank 1: only in the second"), "%s",
            ran.out.c_str());
}

Test(show, tells_values_and_what_is_a_ranks_own, .timeout = 60) {
  Checkpoints c;
  c.add(10, {make_array<double>("rate", 4, {}, {0.125}, wire::kValue),
             make_array<unsigned char>("state", 16, {3}, {0, 255, 16}, wire::kPerRank)});
  auto ran = ckpt({"show", c.dir()});
  for (const char* part : {"value", "= 0.125", "rank 1's own", "\"00ff10\"", "bytes[3]"}) {
    cr_expect(ran.says(part), "%s is not in %s", part, ran.out.c_str());
  }
}

Test(progress, is_a_bar_on_a_terminal_only, .timeout = 60) {
  Checkpoints c;
  c.add(10, {count_up("w", {1000}, wire::kSharded)});
  const auto bar = on_terminal({"bellows", "ckpt", "verify", c.dir()});
  cr_expect(bar.find("verifying step 10 [") != bar.npos && bar.find("\r\x1b[K") != bar.npos, "%s",
            bar.c_str());
  cr_expect(bar.rfind("\r\x1b[K") > bar.rfind("] "), "the bar stays");
  const auto quiet = on_terminal({"bellows", "ckpt", "verify", "--quiet", c.dir()});
  cr_expect(quiet.find('\x1b') == quiet.npos && quiet.find("is good") != quiet.npos);
  auto ran = ckpt({"verify", c.dir()});
  cr_expect(ran.err.empty(), "%s", ran.err.c_str());
}

Test(progress, is_lines_elsewhere, .timeout = 60) {
  ScratchDir scratch;
  const std::string path = scratch.path() + "/err";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  const int saved = dup(STDERR_FILENO);
  dup2(fd, STDERR_FILENO);
  {
    ProgressBar bar(ProgressBar::Style::automatic, std::chrono::milliseconds(0));
    bar.begin("reading", 200);
    (void)bar.add(50).ok();
    (void)bar.add(500).ok();
  }
  dup2(saved, STDERR_FILENO);
  const std::string text = *read_file(path, 4096);
  cr_expect(text.starts_with("reading:  25% of 200 bytes, "), "%s", text.c_str());
  cr_expect(text.find("\nreading: 100% of 200 bytes, ") != text.npos, "%s", text.c_str());
  cr_expect(text.find('\x1b') == text.npos);
}

Test(text, of_sizes) {
  cr_expect(size_text(0) == "0 bytes" && size_text(1023) == "1023 bytes");
  cr_expect(size_text(1024) == "1.0 KiB" && size_text(1536) == "1.5 KiB");
  cr_expect(size_text((1 << 20) - 1) == "1.0 MiB" && size_text(UINT64_MAX) == "16.0 EiB");
  cr_expect(time_text(-1) == "?" && time_text(NAN) == "?" && time_text(1e30) == "?");
}
