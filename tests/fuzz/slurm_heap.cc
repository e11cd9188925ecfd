// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/slurm_heap.h"

#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

/// Before each block: its size, for slurm_xrecalloc clears what is new. Keeps malloc's alignment.
struct alignas(16) Header {
  std::size_t bytes;
};

Header* header_of(void* block) { return static_cast<Header*>(block) - 1; }

void* allocate(std::size_t bytes) {
  auto* header = static_cast<Header*>(std::calloc(1, sizeof(Header) + bytes));
  if (!header) std::abort();
  header->bytes = bytes;
  return header + 1;
}

}  // namespace

extern "C" {

char* slurm_xstrdup(const char* text) {
  if (!text) return nullptr;
  const std::size_t bytes = std::strlen(text) + 1;
  return static_cast<char*>(std::memcpy(allocate(bytes), text, bytes));
}

void slurm_xfree(void** item) {
  if (*item) std::free(header_of(*item));
  *item = nullptr;
}

void* slurm_xcalloc(std::size_t count, std::size_t size, bool, bool, const char*, int,
                    const char*) {
  return allocate(count * size);
}

void* slurm_xrecalloc(void** item, std::size_t count, std::size_t size, bool, bool, const char*,
                      int, const char*) {
  void* bigger = allocate(count * size);
  if (*item) {
    const std::size_t had = header_of(*item)->bytes;
    std::memcpy(bigger, *item, had < count * size ? had : count * size);
  }
  slurm_xfree(item);
  return *item = bigger;
}

void slurm_info(const char*, ...) {}
void slurm_error(const char*, ...) {}

}  // extern "C"

namespace bellows::fuzz {

char* copy(const std::string& text) { return slurm_xstrdup(text.c_str()); }

void fill(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts) {
  entries = static_cast<char**>(allocate((texts.size() + 1) * sizeof(char*)));
  count = static_cast<std::uint32_t>(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) entries[i] = copy(texts[i]);
}

void JobFreed::operator()(job_desc_msg_t* job) const {
  const auto release = [](auto*& field) { slurm_xfree(reinterpret_cast<void**>(&field)); };
  for (std::uint32_t i = 0; i < job->spank_job_env_size; ++i) release(job->spank_job_env[i]);
  for (std::uint32_t i = 0; i < job->env_size; ++i) release(job->environment[i]);
  release(job->spank_job_env);
  release(job->environment);
  for (char** text : {&job->script, &job->account, &job->admin_comment, &job->tres_per_job,
                      &job->tres_per_node, &job->tres_per_task, &job->tres_per_socket,
                      &job->partition, &job->qos, &job->cpus_per_tres, &job->mem_per_tres})
    release(*text);
  delete job;
}

}  // namespace bellows::fuzz
