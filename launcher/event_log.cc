// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace bellows {
namespace {

using nlohmann::json;

// What status needs lies at the end; a long log is not read whole.
constexpr off_t kTail = 1 << 20;

Result<std::string> read_tail(const std::string& path) {
  // Another user's directory may hold anything, a FIFO too.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::invalid, path + " is not a plain file"};
  off_t size = info.st_size;
  off_t from = size > kTail ? size - kTail : 0;
  std::string text(static_cast<std::size_t>(size - from), '\0');
  ssize_t got = pread(fd->get(), text.data(), text.size(), from);
  if (got < 0) return errno_error("read", path);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

double wall_clock() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string JobEvent::to_json() const {
  nlohmann::ordered_json line = {{"time", time},       {"job", job},     {"restart", restart},
                                 {"attempt", attempt}, {"event", event}, {"cause", cause},
                                 {"gpus", gpus},       {"nodes", nodes}};
  line["step"] = step ? nlohmann::ordered_json(*step) : nlohmann::ordered_json(nullptr);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<JobEvent> JobEvent::from_json(const std::string& line) {
  try {
    json value = json::parse(line);
    JobEvent event;
    event.time = value.at("time").get<double>();
    // What no calendar can show.
    if (!(event.time >= 0 && event.time < 2.5e11)) return Error{ErrorKind::corrupt, "not a time"};
    event.job = value.at("job").get<std::uint32_t>();
    event.restart = value.value("restart", 0u);
    event.attempt = value.value("attempt", 0u);
    event.event = value.at("event").get<std::string>();
    event.cause = value.value("cause", "");
    event.gpus = value.value("gpus", 0u);
    event.nodes = value.value("nodes", std::vector<std::string>{});
    if (auto step = value.find("step"); step != value.end() && step->is_number_unsigned())
      event.step = step->get<std::uint64_t>();
    return event;
  } catch (const json::exception& error) {
    return Error{ErrorKind::corrupt, std::string("not an event: ") + error.what()};
  }
}

Result<EventLog> EventLog::open(const std::string& dir) {
  std::string path = dir + "/events.jsonl";
  auto fd = open_file(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (!fd) return fd.error();
  return EventLog(std::move(*fd), path);
}

Status EventLog::append(const JobEvent& event) {
  std::string line = (torn_ ? std::string("\n") : std::string()) + event.to_json() + "\n";
  ssize_t wrote = write(fd_.get(), line.data(), line.size());
  if (wrote < 0) return errno_error("append to", path_);
  torn_ = static_cast<std::size_t>(wrote) != line.size();
  if (torn_) return Error{ErrorKind::io, "cannot append to " + path_ + ": the file system is full"};
  return {};
}

Result<std::vector<JobEvent>> read_events(const std::string& dir, std::uint32_t id,
                                          std::size_t most) {
  auto text = read_tail(dir + "/events.jsonl");
  if (!text) return text.error();
  std::vector<JobEvent> events;
  std::size_t begin = 0;
  while (begin < text->size()) {
    std::size_t end = text->find('\n', begin);
    if (end == std::string::npos) break;
    auto event = JobEvent::from_json(text->substr(begin, end - begin));
    if (event.ok() && event->job == id) events.push_back(std::move(*event));
    begin = end + 1;
  }
  if (events.size() > most) events.erase(events.begin(), events.end() - static_cast<long>(most));
  return events;
}

}  // namespace bellows
