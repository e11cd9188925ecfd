// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/decider.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace bellows::pool {
namespace {

using Kind = SizeReason::Kind;
using namespace std::chrono_literals;

/// Sums of decimals are not exact: 0.1 + 0.2 is not to start a member.
constexpr double kSlack = 1e-9;
constexpr double kMostMembers = 1e6;
/// News may have it decide more often, and steps and scripts are meant by the second.
constexpr std::chrono::milliseconds kSecond{1000};
/// Longer than a keeper is ever busy.
constexpr std::chrono::seconds kHole{5};
/// A trend is what has lasted for so many times the time that a member takes to start: it is
/// believed for one time more.
constexpr double kTrendStarts = 3;

std::uint32_t whole_members(double needed) {
  return static_cast<std::uint32_t>(std::clamp(std::ceil(needed - kSlack), 0.0, kMostMembers));
}

/// What members say of a metric, in members.
struct Said {
  std::vector<double> known;
  double value = 0;  ///< sum, in the metric's own unit
  std::uint32_t missing = 0;

  double sum() const {
    double sum = 0;
    for (const double one : known) sum += one;
    return sum;
  }
};

/// The highest and the lowest may be a lie, so the ones beside them bound what they count for. Of
/// two nobody can say which is right.
void bound_extremes(std::vector<double>& known, double limit) {
  if (known.size() < 3) return;
  std::sort(known.begin(), known.end());
  known.front() = std::max(known.front(), known[1] - limit);
  known.back() = std::min(known.back(), known[known.size() - 2] + limit);
}

Said what_members_say(const std::string& metric, double per_member, SignalBook::Time now,
                      const SignalBook& signals, const std::vector<PoolMember>& ready,
                      const PoolPolicy& policy, bool bounded = true) {
  Said said;
  for (const PoolMember& member : ready) {
    const auto value = signals.get(member.id, metric, now, policy.stale);
    if (!value) {
      ++said.missing;
      continue;
    }
    said.known.push_back(*value / per_member);
    said.value += *value;
  }
  if (bounded) bound_extremes(said.known, policy.vote_limit);
  return said;
}

/// A member that says nothing needs what it has, itself, but is no reason to have more: those that
/// have just become ready say nothing yet, while the others still say the whole load.
double needed_by(const Said& said, double wanted) {
  return std::max(said.sum(), std::min(said.sum() + said.missing, wanted));
}

ScriptMetric script_metric(Said said) {
  std::sort(said.known.begin(), said.known.end());
  const std::size_t known = said.known.size();
  return {.sum = said.value,
          .median = known > 0 ? (said.known[(known - 1) / 2] + said.known[known / 2]) / 2 : 0,
          .largest = known > 0 ? said.known.back() : 0,
          .known = static_cast<std::uint32_t>(known),
          .missing = said.missing};
}

std::vector<PoolMember> ready_of(const std::vector<PoolMember>& members) {
  std::vector<PoolMember> ready;
  for (const PoolMember& member : members)
    if (member.state == PoolMember::State::ready) ready.push_back(member);
  return ready;
}

/// The newest first: the least is lost with it, such as what it has in its caches. Those that
/// aren't ready yet only go above max; a ready one only when enough others are ready.
std::vector<std::string> to_drain(std::vector<PoolMember> members, std::uint32_t wanted,
                                  std::uint32_t max) {
  std::erase_if(members, [](const auto& m) { return m.state == PoolMember::State::draining; });
  std::sort(members.begin(), members.end(), [](const PoolMember& a, const PoolMember& b) {
    return std::tie(a.since, a.id) > std::tie(b.since, b.id);
  });
  std::size_t above = members.size() > max ? members.size() - max : 0;
  std::size_t ready = ready_of(members).size();
  std::vector<std::string> drain;
  for (const PoolMember& member : members) {
    if (member.state != PoolMember::State::unready || above == 0) continue;
    drain.push_back(member.id);
    --above;
  }
  for (const PoolMember& member : members) {
    if (member.state != PoolMember::State::ready || ready <= wanted) continue;
    drain.push_back(member.id);
    --ready;
  }
  return drain;
}

}  // namespace

std::string explain(const SizeDecision& decision) {
  const SizeReason& why = decision.reason;
  switch (why.kind) {
    case Kind::steady:
      if (why.metric.empty()) return fmt::format("{} members are enough", decision.wanted);
      return fmt::format("{} of {:g} needs {:.2f} members, which it has", why.metric, why.value,
                         why.needed);
    case Kind::target:
      return fmt::format("{} of {:g} needs {:.2f} members", why.metric, why.value, why.needed);
    case Kind::threshold:
      return fmt::format("{} of {:.2f} needs {:.2f} members", why.metric, why.value, why.needed);
    case Kind::vote:
      return fmt::format("members voted for {:+}", why.votes);
    case Kind::script:
      return fmt::format("the policy's script asks for {:.2f} members", why.needed);
    case Kind::failed:
      return "the size stays as it is, since the policy's script gave no answer: " + why.error;
    case Kind::stabilising:
      return fmt::format("{:.2f} members would be enough, but not yet for {} s", why.needed,
                         why.window.count());
    case Kind::trend:
      return fmt::format(
          "{} of {:g} rises steadily, and will need {:.2f} members when they have started",
          why.metric, why.value, why.needed);
    case Kind::panic:
      return fmt::format("{:.2f} members would be enough, but the load has just jumped",
                         why.needed);
    case Kind::missing_data:
      return fmt::format("no members are taken away, since {} of them don't say how they are",
                         why.missing);
    case Kind::bounds:
      return fmt::format("{:.2f} members are needed, and the limits of the pool allow {} now",
                         why.needed, decision.wanted);
  }
  return "";
}

Decider::Need Decider::need_of_targets(Time now, const SignalBook& signals,
                                       const std::vector<PoolMember>& ready) const {
  Need need;
  std::uint32_t missing = 0;
  for (const TargetRule& rule : policy_.targets) {
    const Said said = what_members_say(rule.metric, rule.per_member, now, signals, ready, policy_);
    const double known = static_cast<double>(said.known.size());
    const bool mean = rule.of == TargetRule::Of::mean;
    missing = std::max(missing, said.missing);
    if (mean && said.known.empty()) continue;
    const double members = mean ? said.sum() / known : needed_by(said, wanted_);
    if (members <= need.members && need.reason.kind == Kind::target) continue;
    need.members = members;
    need.reason = {.kind = Kind::target,
                   .metric = rule.metric,
                   .value = mean ? said.value / known : said.value,
                   .needed = members};
  }
  need.reason.missing = missing;
  return need;
}

std::optional<Decider::Need> Decider::need_of_thresholds(
    Time now, const SignalBook& signals, const std::vector<PoolMember>& ready) const {
  std::optional<Need> most;
  std::uint32_t missing = 0;
  for (const ThresholdRule& rule : policy_.thresholds) {
    const double middle = (rule.up + rule.down) / 2;
    const Said said = what_members_say(rule.metric, middle, now, signals, ready, policy_);
    missing = std::max(missing, said.missing);
    if (said.known.empty()) continue;
    Need need{.members = needed_by(said, wanted_), .reason = {}};
    const double mean = said.sum() * middle / static_cast<double>(said.known.size());
    need.reason = {.kind = Kind::threshold, .metric = rule.metric, .value = mean};
    if (mean > rule.up) need.members = std::max<double>(need.members, wanted_);
    if (mean <= rule.up && mean >= rule.down) need.members = wanted_;
    need.reason.needed = need.members;
    if (!most || need.members > most->members) most = need;
  }
  if (most) most->reason.missing = missing;
  return most;
}

/// A script that fails is no reason to act.
Decider::Need Decider::need_of_script(Time now, const SignalBook& signals,
                                      const std::vector<PoolMember>& members,
                                      std::int64_t votes) const {
  const auto ready = ready_of(members);
  const auto starting = std::count_if(members.begin(), members.end(), [](const auto& m) {
    return m.state == PoolMember::State::unready;
  });
  ScriptSignals seen{.min = policy_.min,
                     .max = policy_.max,
                     .wanted = wanted_,
                     .ready = static_cast<std::uint32_t>(ready.size()),
                     .starting = static_cast<std::uint32_t>(starting),
                     .votes = votes,
                     .metrics = {}};
  Need need{.members = static_cast<double>(wanted_), .reason = {}};
  // What it does not list is not missing: one member's own metric must not keep the pool large.
  for (const std::string& name : policy_.script->names()) {
    Said said = what_members_say(name, 1, now, signals, ready, policy_, false);
    need.reason.missing = std::max(need.reason.missing, said.missing);
    seen.metrics[name] = script_metric(std::move(said));
  }
  const auto asked = policy_.script->members(seen);
  need.reason.kind = asked ? Kind::script : Kind::failed;
  if (asked) need.members = *asked;
  if (!asked) need.reason.error = asked.error().text;
  need.reason.needed = need.members;
  return need;
}

std::optional<std::int64_t> Decider::count_votes(SignalBook& signals,
                                                 const std::vector<PoolMember>& ready) const {
  const auto votes = signals.take_votes();
  const std::int64_t limit = policy_.vote_limit;
  std::optional<std::int64_t> count;
  for (const PoolMember& member : ready) {
    const auto found = votes.find(member.id);
    if (found == votes.end()) continue;
    const std::int64_t vote = std::clamp<std::int64_t>(found->second, -limit, limit);
    if (policy_.votes == PoolPolicy::Votes::largest)
      count = count ? std::max(*count, vote) : vote;
    else
      count = count.value_or(0) + vote;
  }
  return count;
}

std::uint32_t Decider::grown(double needed, SizeReason& reason) const {
  const std::uint32_t asked = whole_members(needed);
  std::uint32_t allowed = std::max(policy_.max, policy_.min);
  // A sudden load is no time for small steps.
  if (policy_.step_up > 0 && !panic_until_)
    allowed = std::min(allowed, std::max(wanted_, step_from_ + policy_.step_up));
  if (asked > allowed) reason.kind = Kind::bounds;
  return std::min(asked, allowed);
}

/// Before others could have started, none may go.
std::chrono::seconds Decider::window_of(Seconds start) const {
  return std::max(policy_.stabilisation, std::chrono::ceil<std::chrono::seconds>(start));
}

void Decider::look_ahead(Need& need, Seconds start) const {
  if (need.reason.kind != Kind::target || need.reason.missing > 0) return;
  const auto line = needs_.line(kTrendStarts * start);
  if (!line) return;
  need.slope = line->slope;
  const double ahead = line->last + line->slope * start.count();
  if (line->slope <= 0 || ahead <= need.members) return;
  need.members = need.reason.needed = ahead;
  need.reason.kind = Kind::trend;
}

std::uint32_t Decider::shrunk(Time now, const Need& need, std::size_t ready, Seconds start,
                              SizeReason& reason) const {
  const auto window = window_of(start);
  // What falls steadily needs fewer by now than it did a start ago. For how long its owner has a
  // pool wait, nothing is foretold.
  double largest = needs_.largest(start, std::min(need.slope, 0.0));
  if (policy_.stabilisation > start)
    largest = std::max(largest, needs_.largest(policy_.stabilisation));
  const std::uint32_t asked = std::max(whole_members(largest), policy_.min);
  reason.window = window;
  if (whole_members(need.members) >= wanted_) return wanted_;
  if (wanted_ <= policy_.min) {
    reason.kind = Kind::bounds;
    return wanted_;
  }
  if (reason.missing > 0 || ready == 0) {
    reason.kind = Kind::missing_data;
    return wanted_;
  }
  if (panic_until_) {
    reason.kind = Kind::panic;
    return wanted_;
  }
  if (now - *first_ < window || asked >= wanted_) {
    reason.kind = Kind::stabilising;
    return wanted_;
  }
  if (policy_.step_down == 0 || asked + policy_.step_down >= step_from_) return asked;
  reason.kind = Kind::bounds;
  return std::min(wanted_, step_from_ - policy_.step_down);
}

Decider::Need Decider::choose(Time now, const SignalBook& signals,
                              const std::vector<PoolMember>& ready,
                              std::optional<std::int64_t> votes, bool rests) const {
  Need need = need_of_targets(now, signals, ready);
  std::optional<Need> other;
  if (votes) {
    const auto vote = static_cast<double>(*votes);
    other.emplace();
    // Who votes for more knows nothing of those that are starting.
    other->members = vote > 0 ? std::max<double>(wanted_, static_cast<double>(ready.size()) + vote)
                              : std::max<double>(0, wanted_ + vote);
    other->reason.kind = Kind::vote;
    other->reason.votes = *votes;
  } else {
    other = need_of_thresholds(now, signals, ready);
    // What changes nothing now must not keep a target from it.
    if (other && rests) other->members = std::min<double>(other->members, wanted_);
  }
  if (!other && policy_.targets.empty()) need.members = wanted_;
  if (!other) return need;
  other->reason.needed = other->members;
  other->reason.missing = std::max(other->reason.missing, need.reason.missing);
  if (policy_.targets.empty() || other->members > need.members) return *other;
  need.reason.missing = other->reason.missing;
  return need;
}

void Decider::begin(Time now, const std::vector<PoolMember>& members) {
  if (!first_) {
    // A keeper that begins again finds the members of the last one.
    const auto gone = std::count_if(members.begin(), members.end(), [](const auto& m) {
      return m.state == PoolMember::State::draining;
    });
    wanted_ =
        std::clamp(static_cast<std::uint32_t>(members.size() - gone), policy_.min, policy_.max);
  }
  // What was needed in between is not known.
  if (!first_ || now - last_ > kHole) {
    first_ = now;
    needs_ = {};
  }
  last_ = now;
  if (now - step_at_ >= kSecond || first_ == now) {
    step_at_ = now;
    step_from_ = wanted_;
  }
  if (panic_until_ && now >= *panic_until_) panic_until_.reset();
}

Decider::Need Decider::ask_script(Time now, const SignalBook& signals,
                                  const std::vector<PoolMember>& members, std::int64_t votes) {
  script_votes_ += votes;
  if (!script_need_ || now - script_at_ >= kSecond) {
    script_at_ = now;
    script_need_ = need_of_script(now, signals, members, std::exchange(script_votes_, 0));
  }
  return *script_need_;
}

SizeDecision Decider::decide(Time now, SignalBook& signals, const MemberStarts& started,
                             const std::vector<PoolMember>& members) {
  const std::vector<PoolMember> ready = ready_of(members);
  // Unknown, nothing is waited for and nothing foretold.
  const Seconds start = started.median().value_or(0s);
  begin(now, members);

  const auto votes = count_votes(signals, ready);
  if (votes) changed_by_threshold_ = now;
  const bool rests = changed_by_threshold_ && now - *changed_by_threshold_ < policy_.burst_interval;
  Need need = policy_.script ? ask_script(now, signals, members, votes.value_or(0))
                             : choose(now, signals, ready, votes, rests);
  const bool by_threshold = need.reason.kind == Kind::threshold;

  needs_.add(now, need.members, kTrendStarts * Seconds(window_of(start)));
  if (!ready.empty() && need.members >= 2 * static_cast<double>(ready.size()))
    panic_until_ = now + policy_.panic_window;
  look_ahead(need, start);

  SizeDecision decision{.wanted = wanted_, .drain = {}, .reason = need.reason};
  const bool more = whole_members(need.members) > wanted_;
  if (need.reason.kind == Kind::vote && !more)
    // A vote is a decision, not a measurement that might be a dip.
    decision.wanted = std::max(whole_members(need.members), policy_.min);
  else if (!by_threshold || !rests)
    decision.wanted = more ? grown(need.members, decision.reason)
                           : shrunk(now, need, ready.size(), start, decision.reason);
  if (decision.wanted == wanted_ && whole_members(need.members) == wanted_ &&
      need.reason.kind != Kind::failed && need.reason.kind != Kind::trend)
    decision.reason.kind = decision.reason.missing > 0 ? Kind::missing_data : Kind::steady;
  if (by_threshold && decision.wanted != wanted_) changed_by_threshold_ = now;
  wanted_ = decision.wanted;
  decision.drain = to_drain(members, wanted_, policy_.max);
  return decision;
}

}  // namespace bellows::pool
