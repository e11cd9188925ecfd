// SPDX-License-Identifier: Apache-2.0
// Images of models in a directory.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/modelstore/disk_support.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::disk_test;

namespace {

constexpr std::uint64_t kBudget = 100 << 20;

DiskTier open_tier(const std::string& path, std::uint64_t budget = kBudget) {
  auto tier = DiskTier::open(path, budget);
  cr_assert(tier.ok(), "%s", tier.error().text.c_str());
  return std::move(*tier);
}

void store(DiskTier& tier, const ImageMemory& memory) {
  const auto stored = tier.store(memory.image(), memory.data());
  cr_assert(stored.ok(), "%s", stored.error().text.c_str());
}

void expect_same(const ImageMemory& memory, const DiskTier& tier) {
  const std::string wrong = memory.differs(tier);
  cr_expect(wrong.empty(), "%s", wrong.c_str());
}

void overwrite(const std::string& path, std::uint64_t at, const std::string& bytes) {
  const Fd fd(open(path.c_str(), O_WRONLY));
  cr_assert_eq(pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)),
               static_cast<ssize_t>(bytes.size()));
}

}  // namespace

Test(model_disk, keeps_images_over_its_end, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/tier";
  const ImageMemory a(5, 1), b(700, 2);
  {
    DiskTier tier = open_tier(path);
    store(tier, a);
    store(tier, b);
    store(tier, a);
    cr_expect_eq(tier.used(), a.image().file_bytes() + b.image().file_bytes());
    expect_same(a, tier);
    expect_same(b, tier);
  }
  DiskTier tier = open_tier(path);
  cr_expect_eq(tier.images().size(), 2);
  cr_expect_eq(tier.used(), a.image().file_bytes() + b.image().file_bytes());
  expect_same(b, tier);
  cr_expect(tier.remove(b.image().digest).ok());
  cr_expect(tier.images() == std::vector<DiskImage>({a.image()}));
  cr_expect_eq(tier.used(), a.image().file_bytes());
  cr_expect(tier.remove(b.image().digest).error().kind == ErrorKind::not_found);
  cr_expect(tier.open_image(b.image().digest).error().kind == ErrorKind::not_found);
  struct stat s;
  cr_assert_eq(stat(path.c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 0777, 0700);
  cr_assert_eq(stat((path + "/" + a.image().digest.to_string()).c_str(), &s), 0);
  cr_expect_eq(s.st_mode & 0777, 0600);
}

Test(model_disk, reads_any_part_by_any_thread, .timeout = 60) {
  const ScratchDir scratch;
  DiskTier tier = open_tier(scratch.path() + "/tier");
  const ImageMemory a(900, 1);
  store(tier, a);
  const auto file = tier.open_image(a.image().digest);
  cr_assert(file.ok());
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<unsigned char> part(300'000);
      for (std::uint64_t at = t * 777; at + part.size() < a.image().bytes; at += 100'001)
        if (!file->read(at, part.data(), part.size()) ||
            std::memcmp(part.data(), a.data() + at, part.size()) != 0)
          ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  cr_expect_eq(wrong, 0);
  unsigned char byte;
  cr_expect(file->read(a.image().bytes, &byte, 0).ok());
  cr_expect(file->read(a.image().bytes, &byte, 1).error().kind == ErrorKind::invalid);
  cr_expect(file->read(UINT64_MAX, &byte, 2).error().kind == ErrorKind::invalid);
  cr_expect(tier.remove(a.image().digest).ok());
  cr_expect(file->read(0, &byte, 1).ok() && byte == a.data()[0], "what is open stays readable");
}

Test(model_disk, takes_memory_that_begins_anywhere, .timeout = 60) {
  const ScratchDir scratch;
  DiskTier tier = open_tier(scratch.path() + "/tier");
  const ImageMemory a(5, 1);
  std::vector<unsigned char> copy(a.image().bytes + kDiskBlock + 1);
  std::memcpy(copy.data() + 1, a.data(), a.image().bytes);
  cr_assert(tier.store(a.image(), copy.data() + 1).ok());
  expect_same(a, tier);
}

Test(model_disk, stays_within_its_budget, .timeout = 60) {
  const ScratchDir scratch;
  const ImageMemory a(5, 1), b(5, 2);
  DiskTier tier = open_tier(scratch.path() + "/tier", 2 * a.image().file_bytes() - 1);
  store(tier, a);
  const auto stored = tier.store(b.image(), b.data());
  cr_assert(!stored.ok());
  cr_expect(stored.error().kind == ErrorKind::unavailable &&
            has(stored.error().text, "remove other"));
  cr_expect_eq(tier.used(), a.image().file_bytes());
  cr_assert(tier.remove(a.image().digest).ok());
  store(tier, b);
}

Test(model_disk, is_used_by_one_process, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/tier";
  {
    const DiskTier tier = open_tier(path);
    const auto second = DiskTier::open(path, kBudget);
    cr_expect(!second.ok() && second.error().kind == ErrorKind::busy);
  }
  open_tier(path);
  cr_assert_eq(chmod(path.c_str(), 0770), 0);
  cr_expect(DiskTier::open(path, kBudget).error().kind == ErrorKind::denied);
  cr_expect(DiskTier::open(scratch.path() + "/a/b", kBudget).error().kind == ErrorKind::not_found);
}

Test(model_disk, removes_what_is_no_whole_image_and_nothing_else, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/tier";
  std::vector<std::unique_ptr<ImageMemory>> images;
  for (unsigned i = 0; i < 6; ++i) images.push_back(std::make_unique<ImageMemory>(5, i));
  const auto file = [&](unsigned i) { return path + "/" + images[i]->image().digest.to_string(); };
  {
    DiskTier tier = open_tier(path);
    for (const auto& image : images) store(tier, *image);
  }
  const std::uint64_t trailer = images[0]->image().bytes;
  cr_assert_eq(truncate(file(1).c_str(), static_cast<off_t>(trailer)), 0);
  overwrite(file(2), trailer + 20, "x");
  overwrite(file(3), trailer + kDiskBlock - 1, "x");
  std::filesystem::rename(file(4), file(5));
  std::filesystem::copy(file(0), file(4) + ".part");
  std::ofstream(path + "/notes.txt") << "mine";
  std::ofstream(path + "/notes.part") << "mine";
  std::ofstream(file(4) + ".other") << "mine";
  const DiskTier tier = open_tier(path);
  cr_expect(tier.images() == std::vector<DiskImage>({images[0]->image()}));
  cr_expect_eq(tier.used(), images[0]->image().file_bytes());
  const std::string first = images[0]->image().digest.to_string();
  const std::string other = images[4]->image().digest.to_string() + ".other";
  cr_expect(names_in(path) ==
            std::set<std::string>({first, "lock", "notes.txt", "notes.part", other}));
}

Test(model_disk, an_image_that_is_spoiled_later_is_told, .timeout = 60) {
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/tier";
  DiskTier tier = open_tier(path);
  const ImageMemory a(5, 1), b(5, 2);
  store(tier, a);
  store(tier, b);
  const std::string file = path + "/" + a.image().digest.to_string();
  std::filesystem::copy_file(path + "/" + b.image().digest.to_string(), file,
                             std::filesystem::copy_options::overwrite_existing);
  cr_expect(has(tier.open_image(a.image().digest).error().text, "another model"));
  const auto open = tier.open_image(b.image().digest);
  cr_assert_eq(truncate((path + "/" + b.image().digest.to_string()).c_str(), 4096), 0);
  unsigned char byte;
  cr_expect(open->read(8192, &byte, 1).error().kind == ErrorKind::corrupt);
  cr_expect(tier.open_image(b.image().digest).error().kind == ErrorKind::corrupt);
}

Test(model_disk, stores_by_several_threads, .timeout = 60) {
  const ScratchDir scratch;
  DiskTier tier = open_tier(scratch.path() + "/tier");
  const ImageMemory same(300, 9);
  std::vector<std::unique_ptr<ImageMemory>> images;
  for (unsigned i = 0; i < 4; ++i) images.push_back(std::make_unique<ImageMemory>(200, i));
  std::atomic<unsigned> stored{0}, busy{0};
  std::vector<std::thread> threads;
  for (const auto& image : images)
    threads.emplace_back([&] {
      cr_expect(tier.store(image->image(), image->data()).ok());
      const auto status = tier.store(same.image(), same.data());
      if (status) ++stored;
      if (!status && status.error().kind == ErrorKind::busy) ++busy;
    });
  for (std::thread& thread : threads) thread.join();
  cr_expect(stored >= 1 && stored + busy == 4);
  for (const auto& image : images) expect_same(*image, tier);
  expect_same(same, tier);
}

Test(disk_image, is_written_in_one_way_only, .timeout = 10) {
  const ImageMemory a(5, 1);
  const std::string block = *a.image().trailer();
  cr_expect(*DiskImage::parse(block) == a.image());
  for (std::size_t i = 0; i < block.size(); ++i) {
    std::string other = block;
    other[i] = static_cast<char>(other[i] ^ 1);
    const auto parsed = DiskImage::parse(other);
    cr_expect(!parsed.ok() && parsed.error().kind == ErrorKind::corrupt, "byte %zu", i);
  }
  cr_expect(!DiskImage::parse(block + "x").ok() && !DiskImage::parse("").ok());
  DiskImage image = a.image();
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4095}, UINT64_MAX - 4095}) {
    image.bytes = bytes;
    cr_expect(!image.trailer().ok());
  }
  image = a.image();
  image.catalogue_bytes = UINT64_MAX;
  cr_expect(!image.trailer().ok());
}
