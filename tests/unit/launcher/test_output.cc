// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/base/plain_output.h"
#include "launcher/base/time_text.h"
#include "launcher/logs/log_line.h"
#include "launcher/logs/log_reader.h"
#include "launcher/logs/log_writer.h"
#include "launcher/ranks/output_relay.h"
#include "launcher/ranks/rank_output.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
    fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  Fd read;
  Fd write;
};

void put(const Fd& fd, const std::string& text) {
  cr_assert(write_all(fd.get(), text, "a pipe").ok());
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// What the plain output of these streams is, fed in chunks of every size.
std::string plain(const std::string& labelled, std::size_t chunk) {
  RankOutput ranks;
  std::string out;
  auto take = [&out](const RankOutput::Piece& piece) {
    out.append(piece.text);
    if (piece.whole) out.push_back('\n');
  };
  for (std::size_t at = 0; at < labelled.size(); at += chunk)
    ranks.feed(std::string_view(labelled).substr(at, chunk), take);
  ranks.end(take);
  return out;
}

std::vector<std::string> log_texts(const std::string& dir, std::uint32_t job,
                                   LogFilter filter = {}) {
  std::vector<std::string> texts;
  LogReader reader(dir, job, std::move(filter));
  (void)reader
      .read([&texts](const LogFile&, const LogLine& line) {
        texts.push_back((line.rank ? std::to_string(*line.rank) : "-") + stream_name(line.stream) +
                        ":" + line.text);
      })
      .ok();
  return texts;
}

/// A relay from two pipes into files.
struct Relay {
  explicit Relay(std::uint64_t log_bytes = 1 << 20, int out_fd = -1)
      : out_file(open((dir.path() + "/out").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600)),
        err_file(open((dir.path() + "/err").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600)) {
    auto started = OutputRelay::start({.log_dir = dir.path() + "/logs",
                                       .job = 7,
                                       .restart = 1,
                                       .log_bytes = log_bytes,
                                       .out = out_fd < 0 ? out_file.get() : out_fd,
                                       .err = err_file.get()});
    cr_assert(started.ok());
    relay.emplace(std::move(*started));
    relay->attach(1, 1, std::move(out.read), std::move(err.read));
  }
  void finish() {
    out.write.reset();
    err.write.reset();
    relay->close(10s);
  }
  ScratchDir dir;
  Fd out_file;
  Fd err_file;
  Pipe out;
  Pipe err;
  std::optional<OutputRelay> relay;
};

}  // namespace

Test(rank_output, is_what_the_ranks_wrote) {
  const std::string piece(RankOutput::kMostInMessage, 'x');
  const std::string labelled = "0: one\n 3: \n12: a: b\n0:" + std::string(" \0\xff\r", 4) +
                               "\n1: " + piece + "\n1: " + piece + "\n1: end\n" +
                               "srun: error: n1: task 0: Exited\n3:no\n: x\n4: no end";
  const std::string wanted = "one\n\na: b\n" + std::string("\0\xff\r", 3) + "\n" + piece + piece +
                             "end\nsrun: error: n1: task 0: Exited\n3:no\n: x\nno end";
  for (std::size_t chunk : {1, 2, 3, 7, 1000, 100000})
    cr_expect(plain(labelled, chunk) == wanted, "chunks of %zu", chunk);
}

Test(rank_output, tells_the_ranks_apart) {
  RankOutput ranks;
  std::vector<std::pair<int, std::string>> pieces;
  ranks.feed("10: a\n 2: b\nsrun: c\n", [&pieces](const RankOutput::Piece& piece) {
    pieces.push_back({piece.rank ? static_cast<int>(*piece.rank) : -1, std::string(piece.text)});
  });
  using Pieces = std::vector<std::pair<int, std::string>>;
  const Pieces wanted = {{10, "a"}, {2, "b"}, {-1, "srun: c"}};
  cr_expect(pieces == wanted);
}

Test(log_line, comes_back_from_its_text) {
  const LogLine line{1763799545.123, 3, LogLine::Stream::err, false, "a  b \x01"};
  cr_expect(line.to_text() == "2025-11-22T08:19:05.123Z 3 err+ a  b \x01", "%s",
            line.to_text().c_str());
  auto again = LogLine::parse(line.to_text());
  cr_assert(again.ok());
  cr_expect(again->to_text() == line.to_text() && again->rank == 3u && !again->whole);
  cr_expect(std::abs(again->time - line.time) < 0.001);
  auto own = LogLine::parse("2025-11-22T08:19:05.123Z - run ");
  cr_expect(own.ok() && !own->rank && own->text.empty());
  for (const char* bad : {"", "x", "2025-11-22T08:19:05.123Z", "2025-11-22T08:19:05.123Z 3",
                          "2025-11-22T08:19:05.123Z x out a", "2025-11-22T08:19:05.123Z 3 oot a",
                          "2025-11-22 08:19:05.123Z 3 out a", "2025-11-22T08:19:05.123Z -1 out a"})
    cr_expect(!LogLine::parse(bad).ok(), "%s", bad);
}

Test(log_file, has_one_name) {
  const LogFile file{7, 1, 2, 3};
  const LogFile ninth{7, 1, 9, 1};
  const LogFile tenth{7, 1, 10, 1};
  cr_expect(file.name() == "7.1.2.3.log");
  cr_expect(LogFile::parse("7.1.2.3.log") == file);
  cr_expect(ninth < tenth);
  for (const char* bad :
       {"", "7.1.2.log", "7.1.2.3.4.log", "07.1.2.3.log", "7.1.2.3.txt", "7..2.3.log"})
    cr_expect(!LogFile::parse(bad), "%s", bad);
}

Test(output_relay, passes_on_and_logs, .timeout = 30) {
  Relay relay;
  put(relay.out.write, "0: zero\n1: one\n");
  put(relay.err.write, "1: oops\nsrun: x\n");
  relay.relay->say("bellows run: said");
  put(relay.out.write, "0: no end");
  relay.finish();
  cr_expect(text_of(relay.dir.path() + "/out") == "zero\none\nno end");
  cr_expect(text_of(relay.dir.path() + "/err") == "oops\nsrun: x\nbellows run: said\n");
  auto texts = log_texts(relay.dir.path() + "/logs", 7);
  std::sort(texts.begin(), texts.end());
  cr_expect(texts ==
            std::vector<std::string>({"-run:bellows run: said", "-run:srun: x", "0out:no end",
                                      "0out:zero", "1err:oops", "1out:one"}));
  LogFilter one;
  cr_assert(parse_ranks("1", one));
  cr_expect(log_texts(relay.dir.path() + "/logs", 7, one).size() == 2);
  cr_expect(std::filesystem::exists(relay.dir.path() + "/logs/7.1.1.1.log"));
}

// Ranks may start steps of their own; a slurmstepd speaks through its first rank.
Test(output_relay, knows_who_says_what, .timeout = 30) {
  Relay relay;
  put(relay.err.write,
      "1: srun: error: Node failure on n2\nsrun: error: n1: task 0: Killed\n"
      "0: slurmstepd-n1: error: execve(): no\nplain\n");
  relay.err.write.reset();
  relay.out.write.reset();
  relay.relay->settle(10s);
  const OutputRelay::Errors errors = relay.relay->take_errors();
  cr_expect(errors.ranks == std::vector<std::string>({"srun: error: Node failure on n2", "plain"}));
  cr_expect(errors.slurm == std::vector<std::string>({"srun: error: n1: task 0: Killed",
                                                      "slurmstepd-n1: error: execve(): no"}));
  cr_expect(relay.relay->take_errors().ranks.empty());
}

// What a blocked output held back until the next srun runs.
Test(output_relay, takes_no_late_words_for_the_next_srun_s, .timeout = 30) {
  Relay relay;
  put(relay.err.write, "srun: error: early\n");
  Pipe out, err;
  relay.relay->attach(1, 2, std::move(out.read), std::move(err.read));
  put(relay.err.write, "srun: error: late\n0: late\n");
  put(err.write, "srun: error: new\n0: new\n");
  for (Fd* end : {&relay.out.write, &relay.err.write, &out.write}) end->reset();
  cr_expect(!relay.relay->settle(10ms), "one is open");
  err.write.reset();
  cr_expect(relay.relay->settle(10s));
  const OutputRelay::Errors errors = relay.relay->take_errors();
  cr_expect(errors.slurm == std::vector<std::string>({"srun: error: new"}));
  cr_expect(errors.ranks == std::vector<std::string>({"new"}));
  relay.finish();
  cr_expect(text_of(relay.dir.path() + "/err").find("late\nlate\n") != std::string::npos,
            "passed on all the same");
}

Test(output_relay, never_holds_up_its_owner, .timeout = 30) {
  Pipe nobody_reads;
  Relay relay(1 << 20, nobody_reads.write.get());
  // More than both pipes hold: whoever writes must wait, and nobody else.
  fcntl(relay.out.write.get(), F_SETFL, O_NONBLOCK);
  const std::string line = "0: " + std::string(1000, 'x') + "\n";
  ssize_t wrote = 0;
  for (int i = 0; i < 2000 && wrote >= 0; ++i) {
    wrote = write(relay.out.write.get(), line.data(), line.size());
    if (wrote < 0 && i < 100) usleep(1000), wrote = 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) relay.relay->say("busy");
  relay.relay->close(200ms);
  cr_expect(std::chrono::steady_clock::now() - begin < 5s);
}

Test(output_relay, goes_on_when_its_output_is_gone, .timeout = 30) {
  signal(SIGPIPE, SIG_IGN);
  Pipe gone;
  gone.read.reset();
  Relay relay(1 << 20, gone.write.get());
  for (int i = 0; i < 100; ++i) put(relay.out.write, "0: line\n");
  relay.finish();
  cr_expect(log_texts(relay.dir.path() + "/logs", 7).size() == 100);
}

Test(output_relay, goes_on_when_its_disk_is_full, .timeout = 30) {
  Fd full(open("/dev/full", O_WRONLY));
  Relay relay(1 << 20, full.get());
  for (int i = 0; i < 100; ++i) put(relay.out.write, "0: line\n");
  relay.finish();
  cr_expect(log_texts(relay.dir.path() + "/logs", 7).size() == 100);
}

Test(plain_output, tells_what_is_missing, .timeout = 30) {
  Pipe pipe;
  PlainOutput out(pipe.write.get(), 10);
  out.write(std::string(1 << 20, 'x'));
  const std::uint64_t lost = out.lost();
  cr_expect(lost > 0 && lost < 1 << 20);
  char buffer[65536];
  while (read(pipe.read.get(), buffer, sizeof buffer) > 0) {
  }
  out.write("again\n");
  const ssize_t got = read(pipe.read.get(), buffer, sizeof buffer);
  cr_assert(got > 0);
  cr_expect(std::string(buffer, static_cast<std::size_t>(got)) ==
            "\nbellows run: " + std::to_string(lost) +
                " bytes are missing here: nobody read them\nagain\n");
}

Test(log_writer, keeps_to_its_size, .timeout = 30) {
  ScratchDir dir;
  constexpr std::uint64_t kMost = 1 << 16;
  LogWriter writer(dir.path() + "/logs", 7, kMost);
  writer.begin(0, 1);
  const std::string line =
      LogLine{1, 0, LogLine::Stream::out, true, std::string(1000, 'x')}.to_text();
  for (int i = 0; i < 500; ++i) {
    if (i == 250) writer.begin(0, 2);
    writer.add(line + "\n");
  }
  writer.close(10s);
  std::uint64_t sum = 0;
  for (const LogFile& file : log_files(dir.path() + "/logs", 7))
    sum += std::filesystem::file_size(dir.path() + "/logs/" + file.name());
  cr_expect(sum <= kMost && sum > kMost / 2, "%lu bytes", sum);
  cr_expect(log_files(dir.path() + "/logs", 7).back().attempt == 2);
}

Test(log_writer, counts_what_it_leaves_out, .timeout = 30) {
  ScratchDir dir;
  LogWriter writer(dir.path() + "/logs", 7, 1 << 30);
  writer.begin(0, 1);
  const std::string line =
      LogLine{1, 0, LogLine::Stream::out, true, std::string(4000, 'x')}.to_text() + "\n";
  std::string many;
  for (int i = 0; i < 500; ++i) many += line;
  for (std::size_t sum = 0; sum < 2 * LogWriter::kMostEachSecond; sum += many.size())
    writer.add(many);
  usleep(1100000);
  writer.add(line);
  writer.close(10s);
  const auto texts = log_texts(dir.path() + "/logs", 7);
  const auto note = std::find_if(texts.begin(), texts.end(), [](const std::string& text) {
    return text.ends_with(
        "lines are missing here: they came faster than the log could take them, or its file system "
        "accepted no data");
  });
  cr_expect(note != texts.end() && texts.back() == "0out:" + std::string(4000, 'x'));
}

Test(log_writer, without_a_size_writes_nothing) {
  ScratchDir dir;
  LogWriter writer(dir.path() + "/logs", 7, 0);
  writer.add("x\n");
  writer.close(1s);
  cr_expect(!std::filesystem::exists(dir.path() + "/logs"));
}

Test(log_reader, follows_a_line_that_is_being_written) {
  ScratchDir dir;
  const std::string line = LogLine{5, 2, LogLine::Stream::out, true, "hello"}.to_text() + "\n";
  std::ofstream file(dir.path() + "/7.0.1.1.log", std::ios::binary);
  LogReader reader(dir.path(), 7, {});
  int lines = 0;
  auto count = [&lines](const LogFile&, const LogLine&) { ++lines; };
  file << line.substr(0, 10) << std::flush;
  cr_expect(reader.read(count).ok() && lines == 0);
  file << line.substr(10) << "noise\n" << std::flush;
  cr_expect(reader.read(count).ok() && lines == 1 && reader.damaged() == 1);
  std::ofstream(dir.path() + "/7.0.2.1.log") << line;
  std::ofstream(dir.path() + "/8.0.2.1.log") << line;
  cr_expect(reader.read(count).ok() && lines == 2);
  cr_expect(!LogReader(dir.path() + "/none", 7, {}).read(count).ok());
}

Test(log_reader, takes_a_list_of_ranks_and_an_attempt) {
  LogFilter filter;
  cr_expect(parse_ranks("0,4-6", filter) && filter.ranks == std::set<std::uint32_t>({0, 4, 5, 6}));
  for (const char* bad : {"", "x", "1-", "-1", "3-2", "1,,2", "99999999999", "0-99999999"})
    cr_expect(!parse_ranks(bad, filter), "%s", bad);
  LogFilter attempt;
  cr_expect(parse_attempt("2.3", attempt) && attempt.restart == 2u && attempt.attempt == 3u);
  for (const char* bad : {"", "x", "1.", ".1", "1.2.3"})
    cr_expect(!parse_attempt(bad, attempt), "%s", bad);
}

Test(time_text, takes_durations_and_times) {
  setenv("TZ", "UTC-2", 1);
  tzset();
  const double now = 1763799545.5;  // 2025-11-22T08:19:05.5Z
  cr_expect(parse_since("10m", now) == now - 600);
  cr_expect(parse_since("1h30m", now) == now - 5400);
  cr_expect(parse_since("2025-11-22T08:00Z", now) == 1763798400.0);
  cr_expect(parse_since("2025-11-22 10:00", now) == 1763798400.0);
  cr_expect(parse_since("10:00", now) == 1763798400.0);
  cr_expect(parse_since("10:00:00.25", now) == 1763798400.25);
  cr_expect(parse_since("2025-11-22", now) == 1763762400.0);
  for (const char* bad : {"", "10", "m", "10x", "25:00", "2025-13-01", "yesterday", "10m5", "-5m"})
    cr_expect(!parse_since(bad, now), "%s", bad);
  cr_expect(duration_text(5) == "5.0 s" && duration_text(245) == "4:05 min");
}
