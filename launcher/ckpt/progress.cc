// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "launcher/base/terminal.h"
#include "launcher/ckpt/text.h"

namespace bellows {
namespace {

constexpr auto kDrawEvery = std::chrono::milliseconds(100);

volatile std::sig_atomic_t interrupt_came = 0;

void note_interrupt(int) { interrupt_came = 1; }

std::string left_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, 1e6));
  if (whole < 60) return fmt::format("{} s left", whole);
  return fmt::format("{}:{:02} min left", whole / 60, whole % 60);
}

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_came != 0; }

ProgressBar::ProgressBar(Style style, std::chrono::milliseconds line_every)
    : quiet_(style == Style::quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      line_every_(line_every) {}

void ProgressBar::begin(std::string what, std::uint64_t total) {
  end();
  std::lock_guard lock(mutex_);
  what_ = std::move(what);
  total_ = total;
  done_ = 0;
  began_ = shown_ = Clock::now();
  if (terminal_) shown_ -= kDrawEvery;
}

Status ProgressBar::add(std::uint64_t bytes) {
  if (interrupted()) return Error{ErrorKind::unavailable, what_ + ": interrupted"};
  std::lock_guard lock(mutex_);
  done_ = std::min(total_, done_ + bytes);
  const auto now = Clock::now();
  if (quiet_ || now - shown_ < (terminal_ ? kDrawEvery : line_every_)) return {};
  shown_ = now;
  show(now);
  return {};
}

void ProgressBar::show(Clock::time_point now) {
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - began_).count());
  const double rate = std::max(1.0, static_cast<double>(done_) / seconds);
  const double part = total_ ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
  const std::string figures = fmt::format("{:3.0f}% of {}, {}/s, {}", part * 100, size_text(total_),
                                          size_text(static_cast<std::uint64_t>(rate)),
                                          left_text(static_cast<double>(total_ - done_) / rate));
  if (!terminal_) {
    fmt::print(stderr, "{}: {}\n", what_, figures);
    return;
  }
  const std::size_t width = terminal_width(STDERR_FILENO);
  const std::size_t text = what_.size() + figures.size() + 6;
  const std::size_t bar = width > text + 4 ? std::min<std::size_t>(40, width - text) : 0;
  const auto full = static_cast<std::size_t>(part * static_cast<double>(bar));
  std::string line = fmt::format("{} [{:#<{}}{:<{}}] {}", what_, "", full, "", bar - full, figures);
  if (bar == 0) line = fmt::format("{}: {}", what_, figures).substr(0, width - 1);
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::end() {
  std::lock_guard lock(mutex_);
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace bellows
