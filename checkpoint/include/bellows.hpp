// SPDX-License-Identifier: Apache-2.0
/// libbellows for C++20: bellows.h with RAII, spans and exceptions. Needs nothing but bellows.h at
/// link time; libbellows(3) says what each call does.
///
///     bellows::Checkpoint checkpoint;
///     checkpoint.replicated("weights", std::span(weights));
///     std::uint64_t step = checkpoint.restore().value_or(0);
///     for (; step < last; step++) {
///       const bool stop = checkpoint.should_stop(step);
///       if (stop || step % 100 == 0) checkpoint.save_async(step);
///       if (stop) return checkpoint.leave();
///       train_one_step();
///     }
///     checkpoint.finish();
#ifndef BELLOWS_HPP
#define BELLOWS_HPP

#include "bellows.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bellows {

/// What a call was refused for: a BELLOWS_ERR_ code and the library's sentence.
class CheckpointError : public std::runtime_error {
 public:
  CheckpointError(int code, const char* text)
      : std::runtime_error(*text ? text : bellows_strerror(code)), code_(code) {}
  /// What the last call on this handle ended with.
  CheckpointError(int code, const bellows_t* handle)
      : CheckpointError(code, bellows_error(handle)) {
    std::uint64_t step = 0;
    if (bellows_error_step(handle, &step) == 1) failed_step_ = step;
  }
  int code() const noexcept { return code_; }
  /// The step of a save in flight that failed; none: it was the call itself that failed.
  std::optional<std::uint64_t> failed_step() const noexcept { return failed_step_; }

 private:
  int code_;
  std::optional<std::uint64_t> failed_step_;
};

namespace detail {

template <typename T>
constexpr std::int32_t integer_dtype() {
  constexpr std::int32_t kSigned[] = {BELLOWS_I8, BELLOWS_I16, 0, BELLOWS_I32,
                                      0,          0,           0, BELLOWS_I64};
  constexpr std::int32_t kUnsigned[] = {BELLOWS_U8, BELLOWS_U16, 0, BELLOWS_U32,
                                        0,          0,           0, BELLOWS_U64};
  return std::is_signed_v<T> ? kSigned[sizeof(T) - 1] : kUnsigned[sizeof(T) - 1];
}

}  // namespace detail

/// The BELLOWS_ data type of a C++ type; one without fails to compile.
template <typename T>
constexpr std::int32_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return BELLOWS_BOOL;
  } else if constexpr (std::is_same_v<T, std::byte>) {
    return BELLOWS_BYTES;
  } else if constexpr (std::is_integral_v<T>) {
    return detail::integer_dtype<T>();
  } else if constexpr (std::is_same_v<T, float>) {
    return BELLOWS_F32;
  } else if constexpr (std::is_same_v<T, double>) {
    return BELLOWS_F64;
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return BELLOWS_C64;
  } else {
    static_assert(std::is_same_v<T, std::complex<double>>, "no BELLOWS_ data type");
    return BELLOWS_C128;
  }
}

/// One rank of a program that saves and restores its arrays, which must outlive it or be
/// forgotten. One thread at a time. Every call throws CheckpointError when it fails.
class Checkpoint {
 public:
  struct Options {
    std::string dir;  ///< empty: as the environment says
    std::int32_t rank = -1;
    std::int32_t world = -1;
    std::int32_t keep = 0;
    std::uint64_t keep_every = 0;
  };
  struct Memory {
    std::uint64_t needed = 0;
    std::uint64_t available = 0;
  };

  Checkpoint() : Checkpoint(Options()) {}
  explicit Checkpoint(const Options& options) {
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.dir = options.dir.empty() ? nullptr : options.dir.c_str();
    config.rank = options.rank;
    config.world = options.world;
    config.keep = options.keep;
    config.keep_every = options.keep_every;
    const int code = bellows_init(&config, &handle_);
    if (code >= 0) return;
    const CheckpointError error(code, handle_);
    bellows_finalize(std::exchange(handle_, nullptr), 0);
    throw error;
  }
  Checkpoint(Checkpoint&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Checkpoint& operator=(Checkpoint&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  /// Leaves as unfinished, unless finish() or leave() was called; the outcome of saves in flight is
  /// then not reported.
  ~Checkpoint() { bellows_finalize(handle_, 0); }

  /// The same on every rank. An empty shape means one axis.
  template <typename T, std::size_t N>
  void replicated(const char* name, std::span<T, N> data,
                  std::span<const std::uint64_t> shape = {}) {
    add(name, dtype_of<T>(), BELLOWS_REPLICATED, shape, data.size(), data.data());
  }
  /// This rank's own, of a shape of its own.
  template <typename T, std::size_t N>
  void per_rank(const char* name, std::span<T, N> data, std::span<const std::uint64_t> shape = {}) {
    add(name, dtype_of<T>(), BELLOWS_PER_RANK, shape, data.size(), data.data());
  }
  /// One small value, the same on every rank.
  template <typename T>
  void value(const char* name, T& data) {
    bellows_array array = BELLOWS_ARRAY_INIT;
    array.name = name;
    array.dtype = dtype_of<T>();
    array.layout = BELLOWS_VALUE;
    array.data = &data;
    add(array);
  }
  /// The part from `first` on of an array of one axis with `total` elements.
  template <typename T, std::size_t N>
  void sharded(const char* name, std::span<T, N> data, std::uint64_t first, std::uint64_t total) {
    bellows_array array = BELLOWS_ARRAY_INIT;
    array.name = name;
    array.dtype = dtype_of<T>();
    array.ndims = 1;
    array.shape = &total;
    array.layout = BELLOWS_SHARDED;
    array.first = first;
    array.count = data.size();
    array.data = data.data();
    add(array);
  }
  /// Any array that bellows.h can describe.
  void add(const bellows_array& array) { check(bellows_register_array(handle_, &array)); }
  void forget(const char* name) { check(bellows_unregister(handle_, name)); }

  /// Fills the arrays from the newest checkpoint, and its step; nothing when there is none.
  std::optional<std::uint64_t> restore() {
    std::uint64_t step = 0;
    return check(bellows_restore(handle_, &step)) == BELLOWS_OK ? std::optional(step)
                                                                : std::nullopt;
  }
  void save(std::uint64_t step) { check(bellows_save(handle_, step)); }
  void save_async(std::uint64_t step) { check(bellows_save_async(handle_, step)); }
  void wait() { check(bellows_wait(handle_)); }
  std::optional<std::uint64_t> saved_step() {
    std::uint64_t step = 0;
    return check(bellows_saved_step(handle_, &step)) == BELLOWS_OK ? std::optional(step)
                                                                   : std::nullopt;
  }
  /// The samples in a step over all ranks: what was ordered for the job, else `own`.
  std::uint64_t batch(std::uint64_t own) {
    std::uint64_t out = 0;
    check(bellows_batch(handle_, own, &out));
    return out;
  }
  /// The gradient's noise scale, from which bellowsd finds how large a batch pays off.
  void noise_scale(double samples) { check(bellows_noise_scale(handle_, samples)); }
  bool should_stop(std::uint64_t step) { return check(bellows_should_stop(handle_, step)) == 1; }
  /// The step to count on to, when a stop is being decided and no other step may come.
  std::optional<std::uint64_t> stop_ahead() {
    std::uint64_t step = 0;
    return check(bellows_stop_ahead(handle_, &step)) == 1 ? std::optional(step) : std::nullopt;
  }
  Memory memory() {
    Memory out;
    check(bellows_memory(handle_, &out.needed, &out.available));
    return out;
  }

  /// Training is complete.
  void finish() { finalize(1); }
  /// Training goes on another time.
  void leave() { finalize(0); }

  std::int32_t rank() const noexcept { return bellows_rank(handle_); }
  std::int32_t world() const noexcept { return bellows_world(handle_); }
  bellows_t* handle() const noexcept { return handle_; }

 private:
  int check(int code) const {
    if (code < 0) throw CheckpointError(code, handle_);
    return code;
  }
  void add(const char* name, std::int32_t dtype, std::int32_t layout,
           std::span<const std::uint64_t> shape, std::uint64_t elements, void* data) {
    std::uint64_t product = 1;
    for (const std::uint64_t extent : shape) product *= extent;
    if (!shape.empty() && product != elements) {
      throw CheckpointError(BELLOWS_ERR_INVALID, "an array's data has another size than its shape");
    }
    bellows_array array = BELLOWS_ARRAY_INIT;
    array.name = name;
    array.dtype = dtype;
    array.ndims = shape.empty() ? 1 : static_cast<std::int32_t>(shape.size());
    array.shape = shape.empty() ? &elements : shape.data();
    array.layout = layout;
    array.data = data;
    add(array);
  }
  // The sentence of a save that failed goes with the handle: so it is asked for before.
  void finalize(int finished) {
    int code = bellows_wait(handle_);
    const CheckpointError error(code, handle_);
    const int left = bellows_finalize(std::exchange(handle_, nullptr), finished);
    if (code < 0) throw error;
    if (left < 0) throw CheckpointError(left, "");
  }

  bellows_t* handle_ = nullptr;
};

/// Part of an epoch's order of samples: see bellows_permutation.
inline std::vector<std::uint64_t> permutation(std::uint64_t seed, std::uint64_t epoch,
                                              std::uint64_t samples, std::uint64_t first,
                                              std::uint64_t count) {
  std::vector<std::uint64_t> out(count);
  const int code = bellows_permutation(seed, epoch, samples, first, count, out.data());
  if (code < 0) throw CheckpointError(code, "positions past the last sample");
  return out;
}

}  // namespace bellows

#endif
