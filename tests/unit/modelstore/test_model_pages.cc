// SPDX-License-Identifier: Apache-2.0
// Huge pages that the kernel makes for models, where an administrator lets it.
#include <sys/mman.h>

#include <fstream>

#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr const char* kSetting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
constexpr std::size_t kHugePage = 2 << 20;

std::string setting() {
  std::string word;
  std::ifstream file(kSetting);
  while (file >> word)
    if (word.front() == '[') return word.substr(1, word.size() - 2);
  return "";
}

/// The kernel's setting for the whole node, which is put back.
class SharedHugePages {
 public:
  SharedHugePages() : before_(setting()) { write("advise"); }
  SharedHugePages(const SharedHugePages&) = delete;
  SharedHugePages& operator=(const SharedHugePages&) = delete;
  ~SharedHugePages() { write(before_); }
  bool are_made() const { return setting() == "advise"; }

 private:
  static void write(const std::string& word) { std::ofstream(kSetting) << word << std::flush; }
  std::string before_;
};

/// Kilobytes of mappings of this name that are huge pages.
std::size_t huge_kilobytes(const std::string& name) {
  std::ifstream file("/proc/self/smaps");
  std::string line;
  std::size_t all = 0;
  bool is_model = false;
  while (std::getline(file, line)) {
    if (line.find(name) != std::string::npos) is_model = true;
    if (line.rfind("VmFlags:", 0) == 0) is_model = false;
    if (is_model && line.rfind("ShmemPmdMapped:", 0) == 0) all += std::stoul(line.substr(15));
  }
  return all;
}

std::size_t huge_kilobytes_of_a_model(const std::vector<std::string>& options) {
  ModelStore store(options);
  const std::string data = random_bytes(8 * kHugePage);
  store.add("m", data);
  store.start();
  const OpenModel model = store.open("m");
  cr_expect(model.ok(), "%s", model.error().c_str());
  cr_expect(!model.ok() || model.data("w") == data);
  return huge_kilobytes("bellows-model");
}

/// Whether there is a huge page that is free now.
bool kernel_has_one() {
  const plain::Handle memory(memfd_create("huge-page", MFD_CLOEXEC));
  plain::Mapping mapping;
  if (ftruncate(memory.get(), 2 * kHugePage) != 0 ||
      !mapping.map_lazily(memory.get(), 2 * kHugePage, PROT_READ | PROT_WRITE))
    return false;
  (void)madvise(mapping.data(), mapping.size(), MADV_HUGEPAGE);
  std::memset(mapping.data(), 1, mapping.size());
  return huge_kilobytes("huge-page") > 0;
}

}  // namespace

Test(model_pages, shared_memory_gets_the_huge_pages_that_the_kernel_makes, .timeout = 60) {
  const SharedHugePages pages;
  if (!pages.are_made() || !kernel_has_one())
    cr_skip_test("only root can have the kernel make huge pages, where some are free");
  cr_expect_geq(huge_kilobytes_of_a_model({}), kHugePage >> 10);
  cr_expect_eq(huge_kilobytes_of_a_model({"--small-pages"}), 0);
}
