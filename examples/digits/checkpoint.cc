// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/checkpoint.h"

#include <cstdio>
#include <stdexcept>
#include <utility>

namespace digits {

Checkpoint::Checkpoint(const std::string& dir, int rank, int world) {
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.dir = dir.empty() ? nullptr : dir.c_str();
  config.rank = rank;
  config.world = world;
  const int code = bellows_init(&config, &handle_);
  if (code < 0) {
    const std::string text = handle_ != nullptr ? bellows_error(handle_) : bellows_strerror(code);
    bellows_finalize(std::exchange(handle_, nullptr), 0);
    throw std::runtime_error(text);
  }
}

Checkpoint::~Checkpoint() { bellows_finalize(handle_, 0); }

void Checkpoint::check(int code) const {
  if (code < 0) throw std::runtime_error(bellows_error(handle_));
}

void Checkpoint::add(const char* name, int type, std::uint64_t total, int layout, Range slice,
                     void* data) {
  check(bellows_register(handle_, name, type, 1, &total, layout, slice.begin, slice.size(), data));
}

void Checkpoint::replicated(const char* name, std::span<float> values) {
  add(name, BELLOWS_F32, values.size(), BELLOWS_REPLICATED, {0, values.size()}, values.data());
}

void Checkpoint::replicated(const char* name, std::span<std::int64_t> values) {
  add(name, BELLOWS_I64, values.size(), BELLOWS_REPLICATED, {0, values.size()}, values.data());
}

void Checkpoint::sharded(const char* name, std::span<float> values, Range slice,
                         std::size_t total) {
  add(name, BELLOWS_F32, total, BELLOWS_SHARDED, slice, values.data());
}

std::optional<std::uint64_t> Checkpoint::restore() {
  std::uint64_t step = 0;
  const int code = bellows_restore(handle_, &step);
  check(code);
  if (code == BELLOWS_NO_CHECKPOINT) return std::nullopt;
  return step;
}

bool Checkpoint::should_stop(std::uint64_t step) {
  const int answer = bellows_should_stop(handle_, step);
  check(answer);
  return answer == 1;
}

bool Checkpoint::save(std::uint64_t step) {
  const int code = bellows_save(handle_, step);
  if (code != BELLOWS_ERR_IO) {
    check(code);
    return true;
  }
  if (bellows_rank(handle_) == 0) {
    std::fprintf(stderr, "digits: step %llu is not saved: %s\n",
                 static_cast<unsigned long long>(step), bellows_error(handle_));
  }
  return false;
}

void Checkpoint::finish() {
  const int code = bellows_finalize(std::exchange(handle_, nullptr), 1);
  if (code < 0) throw std::runtime_error(bellows_strerror(code));
}

}  // namespace digits
