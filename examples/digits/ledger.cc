// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/ledger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace digits {
namespace {

std::string join(std::span<const std::uint32_t> ids) {
  std::string text;
  for (std::uint32_t id : ids) text += " " + std::to_string(id);
  return text;
}

}  // namespace

int Ledger::next_attempt(const std::string& dir) {
  std::filesystem::create_directories(dir);
  int newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    int attempt = 0;
    int rank = 0;
    const std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "ledger-%d-%d.txt", &attempt, &rank) == 2) {
      newest = std::max(newest, attempt);
    }
  }
  return newest + 1;
}

void Ledger::write_samples(const std::string& dir, std::span<const std::uint32_t> ids) {
  std::ofstream file(dir + "/samples.txt");
  file << join(ids) << "\n";
  if (!file.flush()) throw std::runtime_error(dir + "/samples.txt: cannot be written");
}

Ledger::Ledger(const std::string& dir, const Header& header)
    : path_(dir + "/ledger-" + std::to_string(header.attempt) + "-" + std::to_string(header.rank) +
            ".txt"),
      file_(std::fopen(path_.c_str(), "wxe")) {
  if (!file_) throw std::runtime_error(path_ + ": " + std::strerror(errno));
  write("# digits-ledger/1 attempt=" + std::to_string(header.attempt) +
        " rank=" + std::to_string(header.rank) + " ranks=" + std::to_string(header.ranks) +
        " restored=" + std::to_string(header.restored) + " steps_per_epoch=" +
        std::to_string(header.steps_per_epoch) + " epochs=" + std::to_string(header.epochs) + "\n");
}

void Ledger::record(std::uint64_t step, std::uint64_t epoch, std::span<const std::uint32_t> ids) {
  write(std::to_string(step) + " " + std::to_string(epoch) + join(ids) + "\n");
}

void Ledger::write(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0) {
    throw std::runtime_error(path_ + ": " + std::strerror(errno));
  }
}

}  // namespace digits
