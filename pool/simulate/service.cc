// SPDX-License-Identifier: Apache-2.0
#include "pool/simulate/service.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

namespace bellows::pool {
namespace {

/// Sums of tenths are not exact.
constexpr double kSlack = 1e-6;

struct SimMember {
  PoolView::Member seen;
  double starts_in = 0;
};

class Play {
 public:
  Play(const Service& service, std::uint32_t seed) : service_(service), next_start_(seed) {}

  void resize(const PoolChoice& choice, double at);
  void start(double at, bool at_once);
  /// What those took that have become ready since the last tick.
  std::vector<double> make_ready(double at);
  void serve(double calls, double at);
  PoolView view(double at) const;
  std::uint32_t ready() const;

  PoolFigures figures;
  std::map<double, double> latencies;  ///< calls by the seconds that they waited

 private:
  const Service& service_;
  std::size_t next_start_;
  std::uint32_t next_id_ = 0;
  std::vector<SimMember> members_;  ///< oldest first
  std::deque<std::pair<double, double>> queue_;
  double calls_ = 0;
  double waiting_ = 0;
  double calls_each_ = 0;
};

void Play::start(double at, bool at_once) {
  const double takes = at_once ? 0 : service_.start_s[next_start_++ % service_.start_s.size()];
  members_.push_back({{next_id_++, at_once, at}, takes});
  if (!at_once) ++figures.starts;
}

std::vector<double> Play::make_ready(double at) {
  std::vector<double> started;
  for (SimMember& member : members_) {
    if (member.seen.ready || at + kSlack < member.seen.since + member.starts_in) continue;
    member.seen.ready = true;
    started.push_back(member.starts_in);
  }
  return started;
}

void Play::resize(const PoolChoice& choice, double at) {
  if (choice.chooses)
    std::erase_if(members_, [&](const SimMember& member) {
      return std::find(choice.drain.begin(), choice.drain.end(), member.seen.id) !=
             choice.drain.end();
    });
  for (const bool ready : {false, true})
    for (std::size_t i = members_.size(); !choice.chooses && i-- > 0;)
      if (members_.size() > choice.wanted && members_[i].seen.ready == ready)
        members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
  while (members_.size() < choice.wanted) start(at, false);
}

void Play::serve(double calls, double at) {
  const double arrived = calls * service_.tick_s;
  figures.calls += arrived;
  queue_.emplace_back(at, arrived);
  double room = ready() * service_.at_once / service_.call_s * service_.tick_s;
  const double could = room;
  while (!queue_.empty() && room > 0) {
    auto& [since, left] = queue_.front();
    const double served = std::min(room, left);
    latencies[at - since] += served;
    room -= served;
    left -= served;
    if (left <= 0) queue_.pop_front();
  }
  while (!queue_.empty() && at - queue_.front().first >= service_.timeout_s) {
    figures.failed += queue_.front().second;
    queue_.pop_front();
  }
  calls_ = (could - room) / service_.tick_s * service_.call_s;
  calls_each_ = could > 0 ? (could - room) / could : 0;
  waiting_ = 0;
  for (const auto& [since, left] : queue_) waiting_ += left;
  calls_ += waiting_;
}

PoolView Play::view(double at) const {
  PoolView view;
  view.at = at;
  view.second = static_cast<int>(at + kSlack);
  view.calls = calls_;
  view.waiting = waiting_;
  view.calls_each = calls_each_;
  for (const SimMember& member : members_) view.members.push_back(member.seen);
  return view;
}

std::uint32_t Play::ready() const {
  return static_cast<std::uint32_t>(std::count_if(members_.begin(), members_.end(),
                                                  [](const SimMember& m) { return m.seen.ready; }));
}

}  // namespace

std::uint32_t Service::needed(double calls) const {
  const double members = std::ceil(calls * call_s / target - 1e-9);
  return static_cast<std::uint32_t>(std::clamp<double>(members, min, max));
}

PoolFigures play(const Service& service, const std::vector<double>& load, Autoscaler& autoscaler,
                 std::uint32_t seed) {
  Play play(service, seed);
  if (load.empty()) return {};
  for (std::uint32_t i = service.needed(load[0]); i > 0; --i) play.start(0, true);
  const auto late = static_cast<std::size_t>(std::lround(service.notice_s / service.tick_s));
  double off = 0, member_seconds = 0;
  for (std::size_t tick = 0; tick < load.size(); ++tick) {
    const double at = static_cast<double>(tick) * service.tick_s;
    auto started = play.make_ready(at);
    play.serve(load[tick], at);
    off += std::abs(static_cast<double>(play.ready()) - service.needed(load[tick]));
    PoolView view = play.view(at);
    view.offered = load[tick - std::min(tick, late)] * service.call_s;
    view.started_in = std::move(started);
    member_seconds += static_cast<double>(view.members.size()) * service.tick_s;
    PoolChoice choice = autoscaler.decide(view);
    choice.wanted = std::clamp(choice.wanted, service.min, service.max);
    play.resize(choice, at);
  }
  PoolFigures figures = play.figures;
  figures.agility = off / static_cast<double>(load.size());
  figures.member_hours = member_seconds / 3600;
  double served = 0, seen = 0;
  for (const auto& [wait, calls] : play.latencies) served += calls;
  for (const auto& [wait, calls] : play.latencies) {
    seen += calls;
    figures.p99_s = wait + service.call_s;
    if (seen >= 0.99 * served) break;
  }
  return figures;
}

}  // namespace bellows::pool
