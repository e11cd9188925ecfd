// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The catalogue of a model: which tensors it has, and where they lie in the model's memory. It is
/// of fixed-size little-endian records and is read in place, so that a program that opens a model
/// parses nothing. Included by the library too: nothing here may need libstdc++ at run time.
///
/// Header | Record, Record.. in the order of their names | names, each ended by a zero
namespace bellows::catalogue {

inline constexpr std::uint64_t kMagic = 0x31656c65646f6d62;  // "bmodele1", as it lies in memory
inline constexpr std::uint32_t kMostTensors = 1u << 20;
inline constexpr std::uint32_t kMostDims = 8;
inline constexpr std::uint32_t kMostName = 4095;
/// Of the data of a model, so that sums of two sizes can't overflow.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 56;

/// Those up to 14 have the numbers of enum bellows_dtype.
enum class TensorType : std::uint32_t {
  f16 = 1,
  bf16 = 2,
  f32 = 3,
  f64 = 4,
  i8 = 5,
  i16 = 6,
  i32 = 7,
  i64 = 8,
  u8 = 9,
  u16 = 10,
  u32 = 11,
  u64 = 12,
  boolean = 13,
  c64 = 14,
  f8_e4m3 = 32,
  f8_e5m2 = 33,
  f8_e8m0 = 34,
  f6_e2m3 = 35,  ///< elements of less than a byte are packed
  f6_e3m2 = 36,
  f4 = 37,
};

/// Of one element, or 0 for a type that does not exist.
constexpr std::uint32_t element_bits(std::uint32_t type) {
  constexpr std::uint32_t kBits[] = {0, 16, 16, 32, 64, 8, 16, 32, 64, 8, 16, 32, 64, 8, 64};
  constexpr std::uint32_t kNarrow[] = {8, 8, 8, 6, 6, 4};
  constexpr auto kFirstNarrow = static_cast<std::uint32_t>(TensorType::f8_e4m3);
  if (type < sizeof kBits / sizeof *kBits) return kBits[type];
  if (type < kFirstNarrow) return 0;
  type -= kFirstNarrow;
  return type < sizeof kNarrow / sizeof *kNarrow ? kNarrow[type] : 0;
}

/// Bytes of a tensor; false when they are no whole number, or more than kMostBytes, or there is no
/// such type.
bool tensor_bytes(std::uint32_t type, const std::uint64_t* shape, std::uint32_t dims,
                  std::uint64_t* bytes);

struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t tensors = 0;
  std::uint32_t name_bytes = 0;  ///< of all names with their zeros
  std::uint64_t data_bytes = 0;  ///< of the model's data, in which all tensors lie
};

struct Record {
  std::uint32_t name = 0;  ///< where it begins in the names
  std::uint32_t name_length = 0;
  std::uint32_t type = 0;  ///< enum TensorType
  std::uint32_t dims = 0;
  std::uint64_t shape[kMostDims] = {};  ///< zero from dims on
  std::uint64_t offset = 0;             ///< in the model's data
  std::uint64_t bytes = 0;
};

static_assert(sizeof(Header) == 24 && sizeof(Record) == 96);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

/// Reads a catalogue that may hold anything, where it lies. It must not change meanwhile.
class View {
 public:
  /// Null when all of it is sound; else a sentence that says what is not. `data` begins at a
  /// multiple of 8 and stays the caller's.
  const char* open(const void* data, std::size_t size);

  std::uint32_t count() const { return header_ ? header_->tensors : 0; }
  std::uint64_t data_bytes() const { return header_ ? header_->data_bytes : 0; }
  /// `index` is below count(); they are in the order of their names' bytes.
  const Record& record(std::uint32_t index) const { return records_[index]; }
  /// Ended by a zero, and has none before.
  const char* name(std::uint32_t index) const { return names_ + records_[index].name; }
  /// The index of a name, or count().
  std::uint32_t find(const char* name, std::size_t length) const;

 private:
  const char* check_record(std::uint32_t index) const;
  /// As memcmp and length have it.
  int compare(std::uint32_t index, const char* name, std::size_t length) const;

  const Header* header_ = nullptr;
  const Record* records_ = nullptr;
  const char* names_ = nullptr;
};

}  // namespace bellows::catalogue
