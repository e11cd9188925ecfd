// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Two visitors of the one table of fields in protocol.cc: FieldReader fills a message from JSON
/// and FieldWriter makes JSON of it. An `optional_` field may be missing and is left as it was
/// then. FieldReader throws Error or json::exception at what is missing or wrong.

class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& from) : from_(from) {}

  void text(const char* key, std::string& to) const;
  void optional_text(const char* key, std::string& to) const;
  void optional_text(const char* key, std::optional<std::string>& to) const;
  void optional_flag(const char* key, bool& to) const;
  void number(const char* key, std::uint64_t& to, std::uint64_t most = UINT64_MAX) const;
  void number(const char* key, std::uint32_t& to, std::uint64_t most = UINT32_MAX) const;
  void optional_number(const char* key, std::uint64_t& to) const;
  void optional_number(const char* key, std::uint32_t& to) const;
  void optional_pid(const char* key, std::int64_t& to) const;
  /// A step that must be given.
  void step(const char* key, std::uint64_t& to) const;
  /// A step or null, which must be given.
  void nullable_step(const char* key, std::optional<std::uint64_t>& to) const;
  void optional_step(const char* key, std::optional<std::uint64_t>& to) const;
  void optional_steps(const char* key, std::vector<std::optional<std::uint64_t>>& to) const;
  void optional_ranks(const char* key, std::vector<std::uint32_t>& to) const;
  void ranks_of_nodes(const char* key, std::map<std::string, std::vector<std::uint32_t>>& to) const;
  /// A text that must be given, and a kind that need not.
  void error(Error& to) const;
  /// None: the text is missing or empty.
  void optional_error(std::optional<Error>& to) const;
  void optional_access(const char* key, Access& to) const;
  /// One that is not known is none.
  void optional_signal(const char* key, event::Progress::Signal& to) const;
  void rank_state(const char* key, event::Rank::State& to) const;
  void optional_skipped(const char* key, std::vector<SkippedStep>& to) const;
  void optional_rendezvous(std::optional<Rendezvous>& to) const;
  void shard(ShardFile& to) const;
  void shards(const char* key, std::vector<ShardFile>& to) const;

 private:
  ErrorKind error_kind() const;

  const nlohmann::json& from_;
};

class FieldWriter {
 public:
  explicit FieldWriter(nlohmann::json& to) : to_(to) {}

  void text(const char* key, const std::string& value) { to_[key] = value; }
  /// Not when it is empty.
  void optional_text(const char* key, const std::string& value);
  void optional_text(const char* key, const std::optional<std::string>& value);
  void optional_flag(const char* key, bool value) { to_[key] = value; }
  void number(const char* key, std::uint64_t value, std::uint64_t = 0) { to_[key] = value; }
  void optional_number(const char* key, std::uint64_t value) { to_[key] = value; }
  void optional_pid(const char* key, std::int64_t value) { to_[key] = value; }
  void step(const char* key, std::uint64_t value) { to_[key] = value; }
  void nullable_step(const char* key, const std::optional<std::uint64_t>& value);
  void optional_step(const char* key, const std::optional<std::uint64_t>& value);
  void optional_steps(const char* key, const std::vector<std::optional<std::uint64_t>>& value);
  void optional_ranks(const char* key, const std::vector<std::uint32_t>& value);
  void ranks_of_nodes(const char* key,
                      const std::map<std::string, std::vector<std::uint32_t>>& value);
  void error(const Error& value);
  void optional_error(const std::optional<Error>& value);
  void optional_access(const char* key, Access value);
  void optional_signal(const char* key, event::Progress::Signal value);
  void rank_state(const char* key, event::Rank::State value);
  void optional_skipped(const char* key, const std::vector<SkippedStep>& value);
  void optional_rendezvous(const std::optional<Rendezvous>& value);
  void shard(const ShardFile& value);
  void shards(const char* key, const std::vector<ShardFile>& value);

 private:
  nlohmann::json& to_;
};

}  // namespace bellows
