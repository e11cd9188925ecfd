// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/event_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace bellows {
namespace {

using nlohmann::json;

// What status needs lies at the end; a long log is not read whole.
constexpr std::size_t kTail = 1 << 20;
// No event is as long; a file without newlines must not cost the memory of a parsed one.
constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::string_view kBegin = "{\"time\":";
constexpr std::string_view kSum = ",\"sum\":\"";
constexpr std::size_t kSumDigits = 16;

struct Tail {
  std::string text;
  bool cut = false;
};

Result<Tail> read_tail(const std::string& path, std::size_t most) {
  // Another user's directory may hold anything, a FIFO too.
  auto fd = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!fd) return fd.error();
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::invalid, path + " is not a plain file"};
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::size_t from = size > most ? size - most : 0;
  std::string text(size - from, '\0');
  ssize_t got = pread(fd->get(), text.data(), text.size(), static_cast<off_t>(from));
  if (got < 0) return errno_error("read", path);
  text.resize(static_cast<std::size_t>(got));
  // The first line was cut.
  if (from > 0) text.erase(0, text.find('\n') + 1);
  return Tail{std::move(text), from > 0};
}

std::string sum_of(std::string_view text) {
  return fmt::format("{:016x}", XXH64(text.data(), text.size(), 0));
}

/// What the line's checksum is of; nothing when the line has none.
std::optional<std::string_view> summed_part(std::string_view line) {
  const std::size_t tail = kSum.size() + kSumDigits + 2;
  if (line.size() < tail || !line.ends_with("\"}")) return std::nullopt;
  if (line.substr(line.size() - tail, kSum.size()) != kSum) return std::nullopt;
  return line.substr(0, line.size() - tail);
}

bool sum_matches(std::string_view line, std::string_view summed) {
  return line.substr(summed.size() + kSum.size(), kSumDigits) == sum_of(summed);
}

struct NoteWord {
  EventNote note;
  const char* word;
};
constexpr NoteWord kNotes[] = {
    {EventNote::saving, "saving"},
    {EventNote::committed, "committed"},
    {EventNote::halting, "halting"},
    {EventNote::ranks_go_on, "ranks_go_on"},
    {EventNote::fruitless, "fruitless"},
    {EventNote::resumed, "resumed"},
    {EventNote::halted_in_queue, "halted_in_queue"},
};

const char* note_word(EventNote note) {
  for (const NoteWord& known : kNotes)
    if (known.note == note) return known.word;
  return "";
}

/// A word of a newer version is none.
EventNote note_of(const std::string& word) {
  for (const NoteWord& known : kNotes)
    if (known.word == word) return known.note;
  return EventNote::none;
}

/// The event at the end of a line whose begin is of a torn one.
Result<JobEvent> behind_torn(std::string_view line) {
  const auto begin = line.rfind(kBegin);
  const Error none{ErrorKind::corrupt, "not an event"};
  if (begin == std::string_view::npos || begin == 0) return none;
  return JobEvent::from_line(line.substr(begin));
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
  if (reached) line["reached"] = *reached;
  if (note != EventNote::none) line["note"] = note_word(note);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string JobEvent::to_line() const {
  std::string line = to_json();
  line.pop_back();
  return fmt::format("{}{}{}\"}}", line, kSum, sum_of(line));
}

Result<JobEvent> JobEvent::from_line(std::string_view line) {
  if (line.size() > kLongestLine) return Error{ErrorKind::corrupt, "too long for an event"};
  const auto summed = summed_part(line);
  if (!summed || !sum_matches(line, *summed))
    return Error{ErrorKind::corrupt, "the checksum of an event does not match"};
  return from_json(line);
}

Result<JobEvent> JobEvent::from_json(std::string_view text) {
  try {
    json value = json::parse(text);
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
    if (auto step = value.find("reached"); step != value.end() && step->is_number_unsigned())
      event.reached = step->get<std::uint64_t>();
    event.note = note_of(value.value("note", ""));
    return event;
  } catch (const json::exception& error) {
    return Error{ErrorKind::corrupt, std::string("not an event: ") + error.what()};
  }
}

Result<EventLog> EventLog::open(const std::string& dir, Access access, uid_t user) {
  const bool own = user == geteuid();
  const int flags = O_RDWR | O_APPEND | O_NOFOLLOW | (own ? 0 : O_NONBLOCK);
  std::string path = dir + "/events.jsonl";
  auto fd = open_file(path, flags);
  // For another user nothing is created, since a directory that is a link may lead anywhere.
  if (!fd && fd.error().kind == ErrorKind::not_found && own)
    fd = open_file(path, flags | O_CREAT, file_mode(access));
  if (!fd) return fd.error();
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  if (info.st_uid != user || !(own || S_ISREG(info.st_mode)))
    return Error{ErrorKind::denied, fmt::format("{} is not a plain file of user {}", path, user)};
  return EventLog(std::move(*fd), path);
}

// Left by a writer that was killed, or whose file system was full.
bool EventLog::ends_in_torn_line() const {
  struct stat info;
  char last = '\n';
  if (fstat(fd_.get(), &info) != 0 || info.st_size == 0) return false;
  return pread(fd_.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
}

Status EventLog::append(const JobEvent& event) {
  std::string line = (ends_in_torn_line() ? "\n" : "") + event.to_line() + "\n";
  ssize_t wrote = write(fd_.get(), line.data(), line.size());
  if (wrote < 0) return errno_error("append to", path_);
  if (static_cast<std::size_t>(wrote) != line.size())
    return Error{ErrorKind::io, "cannot append to " + path_ + ": the file system is full"};
  return {};
}

EventLines parse_events(std::string_view text, std::uint32_t job) {
  EventLines lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) continue;
    auto event = JobEvent::from_line(line);
    if (!event) {
      ++lines.damaged;
      event = behind_torn(line);
    }
    if (event.ok() && event->job == job) lines.events.push_back(std::move(*event));
  }
  return lines;
}

Result<EventLines> read_history(const std::string& dir, std::uint32_t job, std::size_t longest) {
  auto tail = read_tail(dir + "/events.jsonl", longest);
  if (!tail) return tail.error();
  EventLines lines = parse_events(tail->text, job);
  lines.cut = tail->cut;
  return lines;
}

Result<std::vector<JobEvent>> read_events(const std::string& dir, std::uint32_t job,
                                          std::size_t most) {
  auto tail = read_tail(dir + "/events.jsonl", kTail);
  if (!tail) return tail.error();
  std::vector<JobEvent> events = parse_events(tail->text, job).events;
  if (events.size() > most) events.erase(events.begin(), events.end() - static_cast<long>(most));
  return events;
}

}  // namespace bellows
