// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/data.h"

#include <zlib.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "examples/digits/random.h"

namespace digits {
namespace {

constexpr int kMaxPixel = 16;
constexpr int kHeldOut = 5;  // one in so many

struct GzClose {
  void operator()(gzFile file) const { gzclose(file); }
};

// Takes the number at the front of `line`, and the comma behind it.
int take_number(std::string_view& line, int max) {
  int value = -1;
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || value < 0 || value > max) throw std::runtime_error("a bad number");
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.starts_with(",")) line.remove_prefix(1);
  return value;
}

Sample parse(std::string_view line, std::uint32_t id) {
  Sample sample{};
  sample.id = id;
  for (float& pixel : sample.pixels) {
    pixel = static_cast<float>(take_number(line, kMaxPixel)) / kMaxPixel;
  }
  sample.label = static_cast<std::uint8_t>(take_number(line, kClasses - 1));
  if (!line.empty()) throw std::runtime_error("more than 65 columns");
  return sample;
}

}  // namespace

std::vector<Sample> read_digits(const std::string& path) {
  std::unique_ptr<gzFile_s, GzClose> file(gzopen(path.c_str(), "rb"));
  if (!file) throw std::runtime_error(path + ": cannot be opened; name the file with --data");
  std::vector<Sample> samples;
  char buffer[1024];
  while (gzgets(file.get(), buffer, sizeof buffer) != nullptr) {
    std::string_view line(buffer);
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    try {
      samples.push_back(parse(line, static_cast<std::uint32_t>(samples.size())));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(path + ":" + std::to_string(samples.size() + 1) + ": " +
                               error.what() + "; 64 pixels from 0 to 16 and a label are expected");
    }
  }
  int error = Z_OK;
  const char* text = gzerror(file.get(), &error);
  if (error != Z_OK && error != Z_STREAM_END) throw std::runtime_error(path + ": " + text);
  if (samples.empty()) throw std::runtime_error(path + ": holds no samples");
  return samples;
}

Dataset split(const std::vector<Sample>& samples) {
  std::array<std::vector<const Sample*>, kClasses> by_label;
  for (const Sample& sample : samples) by_label[sample.label].push_back(&sample);
  std::vector<bool> held_out(samples.size());
  Random random(0);
  for (auto& group : by_label) {
    random.shuffle(group);
    for (std::size_t i = 0; i < group.size() / kHeldOut; ++i) {
      held_out[static_cast<std::size_t>(group[i] - samples.data())] = true;
    }
  }
  Dataset dataset;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    (held_out[i] ? dataset.test : dataset.train).push_back(samples[i]);
  }
  return dataset;
}

std::string default_data_path() {
  if (const char* path = std::getenv("BELLOWS_DIGITS"); path != nullptr && *path != '\0')
    return path;
  const char* local = "build/data/digits.csv.gz";
  if (std::filesystem::exists(local)) return local;
  return "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz";
}

}  // namespace digits
