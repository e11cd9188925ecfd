// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>

#include "launcher/logs/log_writer.h"
#include "launcher/record/event_log.h"
#include "launcher/record/history_writer.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

namespace {

JobEvent event_of(std::uint32_t job, const std::string& state, const std::string& cause = "") {
  return {12.5, job, 1, 2, state, cause, 4, {"n1", "n2"}, 42, 50};
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

}  // namespace

Test(events, come_back_from_their_lines) {
  JobEvent event = event_of(7, "PROCESSING", "from \"here\"\n\xff");
  auto again = JobEvent::from_line(event.to_line());
  cr_assert(again.ok());
  cr_expect(again->to_line() == event.to_line());
  cr_expect(again->step == 42u && again->reached == 50u);
  cr_expect(event.to_line().find('\n') == std::string::npos);
}

Test(events, have_the_documented_checksum) {
  // What `xxhsum -H1` says of the text before ,"sum":"
  JobEvent event{1, 2, 3, 4, "A", "b", 5, {"n"}, {}, {}};
  const std::string text =
      "{\"time\":1.0,\"job\":2,\"restart\":3,\"attempt\":4,\"event\":\"A\",\"cause\":\"b\","
      "\"gpus\":5,"
      "\"nodes\":[\"n\"],\"step\":null";
  cr_expect(event.to_line() == text + ",\"sum\":\"05e946b7c6f5e5e8\"}", "%s",
            event.to_line().c_str());
}

Test(events, are_refused_when_a_byte_changed) {
  const std::string line = event_of(7, "PROCESSING", "committed step 40").to_line();
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] = changed[i] == '7' ? '8' : '7';
    auto event = JobEvent::from_line(changed);
    cr_expect(!event.ok(), "byte %zu: %s", i, changed.c_str());
  }
  for (std::size_t size = 0; size < line.size(); ++size)
    cr_expect(!JobEvent::from_line(line.substr(0, size)).ok());
}

Test(events, are_refused_without_a_checksum) {
  auto lines = parse_events(event_of(7, "PROCESSING").to_json() + "\n", 7);
  cr_expect(lines.events.empty() && lines.damaged == 1);
}

Test(events, behind_a_torn_line_are_found) {
  const std::string torn = event_of(7, "DEPLOYING").to_line().substr(0, 60);
  const std::string whole = event_of(7, "PROCESSING").to_line();
  auto lines = parse_events(torn + whole + "\n" + whole + "\n" + torn, 7);
  cr_expect(lines.events.size() == 2, "%zu", lines.events.size());
  cr_expect(lines.damaged == 1);
  // Without a checksum nothing says that it is not a part of the torn one.
  lines = parse_events(torn + event_of(7, "PROCESSING").to_json() + "\n", 7);
  cr_expect(lines.events.empty() && lines.damaged == 1);
}

Test(events, survive_hostile_lines) {
  const std::string whole = event_of(7, "PROCESSING").to_line() + "\n";
  for (const std::string& bad :
       {std::string("\0\0\0", 3), std::string(100000, '['), std::string(1 << 20, 'x'),
        std::string("{\"time\":"), std::string(",\"sum\":\"0123456789abcdef\"}"),
        std::string("{\"time\":1,\"job\":7,\"event\":[],\"sum\":\"\"}"), std::string("null"),
        std::string("{\"time\":1e999,\"job\":7,\"event\":\"A\"}"),
        std::string("{\"time\":{\"time\":{\"time\":1")}) {
    auto lines = parse_events(bad + "\n" + whole, 7);
    cr_expect(lines.events.size() == 1 && lines.damaged == 1, "%.40s", bad.c_str());
  }
  // A cause may say anything.
  auto lines = parse_events(event_of(7, "FAILED", whole).to_line() + "\n", 7);
  cr_expect(lines.events.size() == 1 && lines.events[0].cause == whole);
}

Test(events, a_log_is_for_those_whom_the_site_allows, .timeout = 10) {
  umask(022);
  for (const auto& [access, mode] :
       {std::pair{Access::owner, 0600u}, {Access::group, 0640u}, {Access::all, 0644u}}) {
    ScratchDir dir;
    struct stat info {};
    cr_assert(EventLog::open(dir.path(), access).ok());
    cr_assert(stat((dir.path() + "/events.jsonl").c_str(), &info) == 0);
    cr_expect((info.st_mode & 07777) == mode, "%o", info.st_mode);
    {
      LogWriter writer(dir.path() + "/logs", 7, 1 << 20, access);
      writer.begin(0, 1);
      writer.add("line\n");
      writer.close(std::chrono::seconds(5));
    }
    cr_assert(stat((dir.path() + "/logs").c_str(), &info) == 0);
    cr_expect((info.st_mode & 07777) == (mode | (mode & 0444) >> 2), "%o", info.st_mode);
    for (const auto& entry : std::filesystem::directory_iterator(dir.path() + "/logs"))
      cr_expect(static_cast<unsigned>(entry.status().permissions()) == mode);
  }
}

// Root tells a job's user of a halt, in a directory that is the user's.
Test(events, root_writes_only_into_a_plain_file_of_the_users, .timeout = 10) {
  if (geteuid() != 0) cr_skip_test("only root can write for other users");
  constexpr uid_t kUser = 64001;
  ScratchDir dir, elsewhere;
  const std::string path = dir.path() + "/events.jsonl", other = elsewhere.path() + "/other";
  cr_expect(!EventLog::open(dir.path(), Access::owner, kUser).ok());
  cr_expect(!std::filesystem::exists(path), "made for another user");
  std::ofstream(other) << "roots\n";
  std::filesystem::create_symlink(other, path);
  cr_expect(!EventLog::open(dir.path(), Access::owner, kUser).ok());
  std::filesystem::remove(path);
  std::filesystem::create_hard_link(other, path);
  cr_expect(!EventLog::open(dir.path(), Access::owner, kUser).ok());
  cr_assert(chown(path.c_str(), kUser, kUser) == 0);
  cr_expect(EventLog::open(dir.path(), Access::owner, kUser).ok());
}

Test(event_log, begins_a_new_line_behind_a_torn_one) {
  ScratchDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  auto log = EventLog::open(dir.path());
  cr_assert(log.ok());
  put(path, event_of(7, "DEPLOYING").to_line().substr(0, 30));
  cr_expect(log->append(event_of(7, "PROCESSING")).ok());
  put(path, "{\"time\":3,\"jo\n");
  auto again = EventLog::open(dir.path());
  cr_expect(again->append(event_of(7, "FAILED")).ok());
  auto history = read_history(dir.path(), 7);
  cr_assert(history.ok());
  cr_expect(history->events.size() == 2 && history->damaged == 2);
  cr_expect(text_of(path).find("\n\n") == std::string::npos);
}

Test(event_log, keeps_the_lines_of_concurrent_writers_whole, .timeout = 60) {
  constexpr std::uint32_t kWriters = 8;
  constexpr std::uint32_t kLines = 300;
  ScratchDir dir;
  std::vector<pid_t> writers;
  for (std::uint32_t writer = 0; writer < kWriters; ++writer) {
    const pid_t pid = fork();
    if (pid != 0) {
      writers.push_back(pid);
      continue;
    }
    auto log = EventLog::open(dir.path());
    for (std::uint32_t i = 0; i < kLines; ++i)
      (void)log->append({1.0 * i, 7, writer, i, "PROCESSING", std::string(i, 'c'), 1, {}, {}, {}})
          .ok();
    _exit(0);
  }
  for (pid_t pid : writers) waitpid(pid, nullptr, 0);
  auto history = read_history(dir.path(), 7);
  cr_assert(history.ok());
  cr_expect(history->damaged == 0);
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const JobEvent& event : history->events) seen.insert({event.restart, event.attempt});
  cr_expect(seen.size() == kWriters * kLines, "%zu", seen.size());
}

Test(event_log, stays_readable_when_writers_are_killed, .timeout = 60) {
  ScratchDir dir;
  for (int round = 0; round < 20; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto log = EventLog::open(dir.path());
      for (std::uint32_t i = 0;; ++i)
        (void)log->append({1, 7, 0, i, "PROCESSING", std::string(2000, 'c'), 1, {}, {}, {}}).ok();
    }
    usleep(5000);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  auto log = EventLog::open(dir.path());
  cr_assert(log->append(event_of(7, "COMPLETED")).ok());
  auto history = read_history(dir.path(), 7);
  cr_assert(history.ok());
  cr_expect(!history->events.empty() && history->events.back().event == "COMPLETED");
  cr_expect(history->damaged <= 20);
}

Test(event_log, does_not_wait_for_what_is_not_a_file, .timeout = 20) {
  ScratchDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  cr_assert(mkfifo(path.c_str(), 0600) == 0);
  cr_expect(!read_events(dir.path(), 0, 2).ok());
  cr_expect(!read_history(dir.path(), 0).ok());
}

Test(event_log, keeps_jobs_apart_and_the_newest) {
  ScratchDir dir;
  auto log = EventLog::open(dir.path());
  for (std::uint32_t i = 0; i < 5; ++i)
    cr_expect(log->append({1.0 * i, i % 2, 0, i, "PROCESSING", "", 1, {}, {}, {}}).ok());
  auto events = read_events(dir.path(), 0, 2);
  cr_assert(events.ok());
  cr_expect(events->size() == 2 && events->front().attempt == 2 && events->back().attempt == 4);
  cr_expect(!read_events("/nonexistent", 0, 2).ok());
}

namespace {

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) usleep(10000);
  return holds();
}

}  // namespace

Test(event_log, says_that_it_was_too_long_to_be_read) {
  ScratchDir dir;
  auto log = EventLog::open(dir.path());
  cr_assert(log.ok());
  for (int i = 0; i < 10; ++i) cr_assert(log->append(event_of(7, "PROCESSING")));
  const std::size_t size = text_of(dir.path() + "/events.jsonl").size();
  auto whole = read_history(dir.path(), 7, size);
  cr_expect(whole.ok() && !whole->cut && whole->events.size() == 10);
  auto end = read_history(dir.path(), 7, size - 1);
  cr_expect(end.ok() && end->cut && end->events.size() == 9 && end->damaged == 0);
}

Test(history_writer, writes_what_it_is_given, .timeout = 60) {
  ScratchDir dir;
  HistoryWriter writer(dir.path());
  for (std::uint32_t i = 0; i < 20; ++i) {
    writer.add({1.0 * i, 7, 0, i, "PROCESSING", "", 1, {}, {}, {}});
    cr_expect(soon([&] {
      auto events = read_events(dir.path(), 7, 100);
      return events.ok() && events->size() == i + 1;
    }));
  }
  cr_expect(!writer.news());
  cr_expect(writer.close(std::chrono::seconds(5)) == 0);
}

Test(history_writer, keeps_what_a_file_system_does_not_take, .timeout = 30) {
  ScratchDir dir;
  const std::string below = dir.path() + "/later";
  HistoryWriter writer(below);
  for (std::uint32_t i = 0; i < 10; ++i)
    writer.add({1.0 * i, 7, 0, i, "PROCESSING", "", 1, {}, {}, {}});
  std::optional<std::string> news;
  cr_expect(soon([&] { return news || (news = writer.news()); }));
  cr_expect(news && news->find("No such file") != std::string::npos, "%s",
            news ? news->c_str() : "");
  cr_expect(!writer.news() && !writer.well(), "told once");
  cr_assert(mkdir(below.c_str(), 0700) == 0);
  news.reset();
  cr_expect(soon([&] { return news || (news = writer.news()); }));
  cr_expect(news && news->find("written again") != std::string::npos && writer.well());
  auto events = read_events(below, 7, 100);
  cr_assert(events.ok() && events->size() == 10);
  for (std::uint32_t i = 0; i < 10; ++i) cr_expect((*events)[i].attempt == i, "in their order");
}

Test(history_writer, drops_the_oldest_of_too_many, .timeout = 30) {
  constexpr std::uint32_t kMore = 5;
  ScratchDir dir;
  const std::string below = dir.path() + "/later";
  HistoryWriter writer(below);
  for (std::uint32_t i = 0; i < HistoryWriter::kMostKept + kMore; ++i)
    writer.add({1.0 * i, 7, 0, i, "PROCESSING", "", 1, {}, {}, {}});
  cr_assert(mkdir(below.c_str(), 0700) == 0);
  cr_expect(soon([&] {
    auto events = read_events(below, 7, 2000);
    return events.ok() && events->size() == HistoryWriter::kMostKept;
  }));
  auto events = read_events(below, 7, 2000);
  cr_assert(events.ok() && !events->empty());
  cr_expect(events->front().attempt == kMore);
  cr_expect(events->back().attempt == HistoryWriter::kMostKept + kMore - 1, "how it ended");
  cr_expect(writer.close(std::chrono::seconds(5)) == kMore, "what is missing is told");
}

// A FIFO that nobody reads takes 64 KiB, and then a write to it hangs.
Test(history_writer, is_not_held_up_by_a_file_system_that_hangs, .timeout = 30) {
  ScratchDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  cr_assert(mkfifo(path.c_str(), 0600) == 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  HistoryWriter writer(dir.path());
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < 100; ++i)
    writer.add({1.0 * i, 7, 0, i, "PROCESSING", std::string(2000, 'c'), 1, {}, {}, {}});
  cr_expect(writer.close(std::chrono::milliseconds(200)) > 0, "not all is written");
  cr_expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
  std::string text;
  char chunk[65536];
  for (int i = 0; i < 1000 && std::count(text.begin(), text.end(), '\n') < 100; ++i) {
    const ssize_t got = read(reader, chunk, sizeof chunk);
    if (got > 0) text.append(chunk, static_cast<std::size_t>(got));
    if (got <= 0) usleep(10000);
  }
  close(reader);
  cr_expect(parse_events(text, 7).events.size() == 100);
}
