// SPDX-License-Identifier: Apache-2.0
// The disk tier without its process: what it stores, lends and removes, and what it knows of that.
#include <criterion/criterion.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "modelstore/disktier/disk_desk.h"
#include "tests/unit/modelstore/disk_support.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::disk_test;

namespace {

/// A directory, and the desk that has it.
class DeskScene {
 public:
  explicit DeskScene(std::uint64_t budget) {
    options_.directory = scratch_.path() + "/disk";
    options_.limits.bytes = budget;
  }
  void budget_of(const std::string& tenant, std::uint64_t bytes) {
    options_.tenants.emplace_back(tenant, bytes);
  }
  void open() {
    auto desk = DiskDesk::open(options_, [this](const DiskMessage& message, int passed) {
      answers_.push_back({message, Fd(passed < 0 ? -1 : dup(passed))});
    });
    cr_assert(desk.ok(), "%s", desk.error().text.c_str());
    desk_ = std::move(*desk);
  }
  void close() {
    settle();
    desk_->end();
    desk_.reset();
  }
  void reopen() {
    close();
    open();
    settle();
  }

  /// "", or why it is not stored.
  std::string store(const ImageMemory& memory, const std::string& tenant = "a",
                    const ModelDigest* source = nullptr) {
    DiskMessage message;
    message.word = DiskWord::store;
    message.number = next_++;
    message.bytes = memory.image().bytes;
    message.catalogue_at = memory.image().catalogue_at;
    message.catalogue_bytes = memory.image().catalogue_bytes;
    message.digest = memory.image().digest;
    message.set_text(tenant);
    message.of_source = source ? 1 : 0;
    if (source) message.source = *source;
    Fd fd(memfd_create("test", MFD_CLOEXEC));
    cr_assert_eq(write(fd.get(), memory.data(), message.bytes),
                 static_cast<ssize_t>(message.bytes));
    desk_->take(message, std::move(fd));
    const DiskMessage answer = await(message.number);
    return answer.word == DiskWord::stored ? "" : std::string(answer.text_view());
  }
  /// The number of what was found; 0: nothing.
  std::uint64_t find(const ModelDigest& digest, bool of_source = false,
                     const std::string& tenant = "a") {
    DiskMessage message;
    message.word = DiskWord::find;
    message.number = next_++;
    message.of_source = of_source ? 1 : 0;
    message.digest = digest;
    message.set_text(tenant);
    desk_->take(message, Fd());
    return await(message.number).word == DiskWord::found ? message.number : 0;
  }
  void release(std::uint64_t number) {
    DiskMessage message;
    message.word = DiskWord::release;
    message.number = number;
    desk_->take(message, Fd());
  }
  void damaged(const ModelDigest& digest) {
    DiskMessage message;
    message.word = DiskWord::damaged;
    message.digest = digest;
    desk_->take(message, Fd());
  }

  /// Until the disk has nothing to do.
  void settle() {
    for (int quiet = 0; quiet < 2; ++quiet)
      while (is_at_work()) desk_->on_event();
  }
  bool has(const ImageMemory& memory) const {
    return names_in(options_.directory).count(memory.image().digest.to_string()) != 0;
  }
  bool was_told(const std::string& text) const {
    return std::any_of(answers_.begin(), answers_.end(), [&](const Told& told) {
      return told.message.text_view().find(text) != std::string_view::npos;
    });
  }
  /// Images and bytes, as the daemon was told last since it was opened.
  std::pair<std::uint64_t, std::uint64_t> held() {
    desk_->tick(std::chrono::steady_clock::now());
    std::pair<std::uint64_t, std::uint64_t> last{0, 0};
    for (const Told& told : answers_)
      if (told.message.word == DiskWord::held) last = {told.message.number, told.message.bytes};
    return last;
  }
  std::uint64_t file_bytes() const {
    std::uint64_t bytes = 0;
    for (const std::string& name : names_in(options_.directory))
      if (name.size() >= 64) {
        // One that is removed meanwhile has no size.
        std::error_code gone;
        const auto size = std::filesystem::file_size(options_.directory + "/" + name, gone);
        if (!gone) bytes += size;
      }
    return bytes;
  }
  DiskDesk& desk() { return *desk_; }
  const std::string& directory() const { return options_.directory; }

 private:
  struct Told {
    DiskMessage message;
    Fd passed;
  };

  bool is_at_work() {
    (void)desk_->tick(std::chrono::steady_clock::now() + std::chrono::seconds(2));
    pollfd p = {desk_->event(), POLLIN, 0};
    return poll(&p, 1, 50) == 1;
  }
  DiskMessage await(std::uint64_t number) {
    for (int waits = 0; waits < 100; ++waits) {
      for (const Told& told : answers_)
        if (told.message.number == number && told.message.word != DiskWord::progress &&
            told.message.word != DiskWord::held)
          return told.message;
      pollfd p = {desk_->event(), POLLIN, 0};
      if (poll(&p, 1, 200) == 1) desk_->on_event();
    }
    cr_assert_fail("no answer");
    return {};
  }

  const ScratchDir scratch_;
  DiskOptions options_;
  std::vector<Told> answers_;
  std::unique_ptr<DiskDesk> desk_;
  std::uint64_t next_ = 1;
};

constexpr std::uint64_t kBlock = kDiskBlock;

}  // namespace

Test(model_disktier, what_is_read_stays_until_it_is_released, .timeout = 60) {
  DeskScene scene(10 * kBlock);
  const ImageMemory a(5, 1), b(5, 2);
  scene.open();
  cr_expect_str_eq(scene.store(a).c_str(), "");
  const std::uint64_t reading = scene.find(a.image().digest);
  cr_assert_neq(reading, 0);
  cr_expect(has(scene.store(b), "no room"), "nothing but a could go");
  cr_expect(scene.has(a));
  scene.release(reading);
  cr_expect_str_eq(scene.store(b).c_str(), "");
  cr_expect(!scene.has(a) && scene.has(b));
}

Test(model_disktier, tells_how_many_images_there_are, .timeout = 60) {
  DeskScene scene(16 << 20);
  const ImageMemory first(10, 1), second(10, 2);
  scene.open();
  cr_expect(scene.held() == std::pair(std::uint64_t{0}, std::uint64_t{0}));
  cr_assert_eq(scene.store(first), "");
  cr_assert_eq(scene.store(second), "");
  scene.settle();
  cr_expect(scene.held() == std::pair(std::uint64_t{2}, scene.file_bytes()));
  scene.damaged(first.image().digest);
  scene.settle();
  cr_expect(scene.held() == std::pair(std::uint64_t{1}, scene.file_bytes()));
  scene.reopen();
  cr_expect(scene.held() == std::pair(std::uint64_t{1}, scene.file_bytes()));
}

Test(model_disktier, a_source_leads_to_what_was_read_from_it, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory a(5, 1), b(6, 2);
  const ModelDigest first{{1}}, second{{2}}, other{{3}};
  scene.open();
  cr_assert(scene.store(a, "a", &first).empty() && scene.store(a, "b", &second).empty());
  cr_assert(scene.store(b, "a", &other).empty());
  scene.reopen();
  for (const ModelDigest* source : {&first, &other}) cr_expect_neq(scene.find(*source, true), 0);
  cr_expect_neq(scene.find(second, true, "b"), 0);
  cr_expect_eq(scene.find(ModelDigest{{4}}, true), 0);
  cr_expect_eq(scene.find(first, false), 0, "a source is no model");
}

Test(model_disktier, what_a_tenant_has_not_stored_it_does_not_find, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory x(5, 1), y(5, 2);
  const ModelDigest digest = x.image().digest, source{{1}};
  scene.budget_of("a", 7 * kBlock);
  scene.open();
  cr_assert(scene.store(x, "a", &source).empty());
  cr_expect_eq(scene.find(digest, false, "b"), 0);
  cr_expect_eq(scene.find(source, true, "b"), 0);
  cr_assert(scene.store(x, "b", &source).empty());
  for (const char* tenant : {"a", "b"}) {
    const auto by_digest = scene.find(digest, false, tenant);
    const auto by_source = scene.find(source, true, tenant);
    cr_expect(by_digest != 0 && by_source != 0, "%s", tenant);
    scene.release(by_digest);
    scene.release(by_source);
  }
  // It leaves one tenant's part of the disk, and stays in the other's.
  cr_assert(scene.store(y, "a").empty());
  for (int opened = 0; opened < 2; ++opened) {
    cr_expect(scene.has(x) && scene.find(digest, false, "a") == 0);
    const auto others = scene.find(digest, false, "b");
    cr_expect_neq(others, 0);
    scene.release(others);
    scene.reopen();
  }
  // Damage is everyone's.
  cr_assert(scene.store(x, "a").empty());
  scene.damaged(digest);
  scene.settle();
  cr_expect(!scene.has(x) && scene.find(digest, false, "a") + scene.find(digest, false, "b") == 0);
}

Test(model_disktier, each_tenant_pays_for_what_both_have, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory x(5, 1);
  scene.budget_of("b", 3 * kBlock);
  scene.open();
  cr_assert(scene.store(x, "a").empty());
  cr_expect(has(scene.store(x, "b"), "its tenant's budget"), "though the file is there");
  cr_expect(scene.has(x) && scene.find(x.image().digest, false, "b") == 0);
  cr_expect_neq(scene.find(x.image().digest), 0);
}

Test(model_disktier, a_damaged_image_goes_while_it_is_read, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory a(5, 1);
  scene.open();
  cr_assert(scene.store(a).empty());
  const std::uint64_t reading = scene.find(a.image().digest);
  scene.damaged(a.image().digest);
  cr_expect_eq(scene.find(a.image().digest), 0);
  scene.settle();
  cr_expect(!scene.has(a));
  // It comes anew while the old one is still being read; that one's end does not harm it.
  cr_assert(scene.store(a).empty());
  scene.release(reading);
  scene.settle();
  cr_expect(scene.has(a) && scene.find(a.image().digest) != 0);
}

Test(model_disktier, what_no_record_knows_is_removed, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory known(5, 1), unknown(6, 2);
  scene.open();
  cr_assert(scene.store(known).empty());
  scene.settle();
  const std::string records = scene.directory() + "/records", kept = records + ".kept";
  std::filesystem::copy_file(records, kept);
  cr_assert(scene.store(unknown).empty());
  scene.close();
  cr_assert(scene.has(unknown));
  // As if its record had not become durable.
  std::filesystem::rename(kept, records);
  scene.open();
  scene.settle();
  cr_expect(scene.has(known) && !scene.has(unknown));
}

Test(model_disktier, a_smaller_budget_keeps_what_was_used_last, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  const ImageMemory a(5, 1), b(5, 2), c(5, 3);
  scene.open();
  for (const ImageMemory* each : {&a, &b, &c}) cr_assert(scene.store(*each).empty());
  usleep(2000);
  scene.release(scene.find(a.image().digest));
  scene.budget_of("a", 13 * kBlock);
  scene.reopen();
  cr_expect(scene.has(a) && scene.has(c) && !scene.has(b), "b was used longest ago");
}

Test(model_disktier, refuses_what_makes_no_sense, .timeout = 60) {
  DeskScene scene(100 * kBlock);
  scene.open();
  DiskMessage message;
  message.word = DiskWord::store;
  message.number = 77;
  message.bytes = 4097;
  scene.desk().take(message, Fd(memfd_create("test", MFD_CLOEXEC)));
  message.word = DiskWord::progress;
  scene.desk().take(message, Fd());
  cr_expect(scene.was_told("one image is stored at a time") && scene.was_told("makes no sense"));
  // Memory that is smaller than it says.
  message.word = DiskWord::store;
  message.number = 78;
  message.bytes = 4096;
  scene.desk().take(message, Fd(memfd_create("test", MFD_CLOEXEC)));
  scene.settle();
  cr_expect(scene.was_told("smaller than the model"));
  cr_expect_eq(scene.file_bytes(), 0);
}

Test(model_disktier, budgets_hold_whatever_happens, .timeout = 60) {
  constexpr std::uint64_t kAll = 24 * kBlock, kOfA = 12 * kBlock;
  DeskScene scene(kAll);
  scene.budget_of("a", kOfA);
  std::vector<std::unique_ptr<ImageMemory>> images;
  for (unsigned i = 0; i < 8; ++i) images.push_back(std::make_unique<ImageMemory>(2 + i, i));
  scene.open();
  std::mt19937 random(1);
  std::vector<std::uint64_t> reading;
  int stored = 0, refused = 0;
  for (int i = 0; i < 400; ++i) {
    const std::size_t which = random() % images.size();
    const ModelDigest digest = images[which]->image().digest;
    switch (random() % 8) {
      case 0:
        if (const auto number = scene.find(digest)) reading.push_back(number);
        break;
      case 1:
        if (!reading.empty()) {
          scene.release(reading.back());
          reading.pop_back();
        }
        break;
      case 2:
        scene.damaged(digest);
        break;
      case 3:
        if (i % 10 == 0) {
          reading.clear();
          scene.reopen();
        }
        break;
      default:
        (scene.store(*images[which], which < 5 ? "a" : "b").empty() ? stored : refused) += 1;
    }
    cr_assert(scene.file_bytes() <= kAll, "after event %d", i);
    std::uint64_t of_a = 0;
    for (std::size_t k = 0; k < 5; ++k)
      if (scene.has(*images[k])) of_a += images[k]->image().file_bytes();
    cr_assert(of_a <= kOfA, "after event %d, %llu bytes are tenant a's", i,
              static_cast<unsigned long long>(of_a));
  }
  cr_expect(stored > 50 && refused > 0, "%d stored, %d refused", stored, refused);
}

Test(disk_records, read_back_what_was_written_and_nothing_else, .timeout = 20) {
  DiskRecords records;
  records[{ModelDigest{{1}}, "team"}] = {1'700'000'000'123, 7, 4500, {ModelDigest{{9}}}};
  records[{ModelDigest{{1}}, "other"}] = {1, 2, 3, {}};
  records[{ModelDigest{{2}}, ""}] = {0, 0, 0, {}};
  const auto text = text_of(records);
  cr_assert(text.ok());
  const auto back = parse_records(*text);
  cr_assert(back.ok(), "%s", back.error().text.c_str());
  cr_expect(*back == records);
  for (std::size_t i = 0; i < text->size(); ++i) {
    std::string damaged = *text;
    damaged[i] ^= 1;
    cr_expect(!parse_records(damaged), "byte %zu", i);
    cr_expect(!parse_records(text->substr(0, i)), "%zu bytes", i);
  }
  DiskRecord record;
  for (unsigned char i = 0; i < 40; ++i) record.add_source(ModelDigest{{i}});
  record.add_source(ModelDigest{{30}});
  cr_expect_eq(record.sources.size(), DiskRecord::kMostSources);
  cr_expect(record.sources.back() == ModelDigest{{30}} &&
            record.sources.front() == ModelDigest{{24}});
}
