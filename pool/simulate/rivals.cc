// SPDX-License-Identifier: Apache-2.0
#include "pool/simulate/rivals.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "pool/simulate/policy_scaler.h"

namespace bellows::pool {
namespace {

double size_of(const PoolView& view) { return static_cast<double>(view.members.size()); }

PoolChoice sized(double members) {
  return {.wanted = static_cast<std::uint32_t>(std::clamp(members, 0.0, 1e6)),
          .chooses = false,
          .drain = {}};
}

/// Figures of the last `kept` seconds.
class Window {
 public:
  explicit Window(std::size_t kept) : kept_(kept) {}
  void add(double value) {
    values_.push_back(value);
    if (values_.size() > kept_) values_.pop_front();
  }
  double mean() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return values_.empty() ? 0 : sum / static_cast<double>(values_.size());
  }
  double largest() const { return *std::max_element(values_.begin(), values_.end()); }

 private:
  std::size_t kept_;
  std::deque<double> values_;
};

PoolPolicy policy_of(const Service& service) {
  PoolPolicy policy;
  policy.min = service.min;
  policy.max = service.max;
  // What waits is to be done in ten seconds. It isn't load: with as many members as calls at
  // once, most would start when they are no longer needed.
  const double in_ten_seconds = 10 * service.target / service.call_s;
  for (const auto& [metric, each] :
       {std::pair("offered", service.target), std::pair("waiting", in_ten_seconds)}) {
    TargetRule target;
    target.metric = metric;
    target.per_member = each;
    policy.targets.push_back(target);
  }
  return policy;
}

/// By calls in progress or waiting, or by the rate of calls, as its user chooses.
/// KEDA with the horizontal pod autoscaler: a metric of AverageValue each 15 s, tolerance 10 %, at
/// most the larger of 100 % and 4 pods more in 15 s, the largest wish of 300 s before it shrinks.
/// kubernetes/kubernetes: pkg/controller/podautoscaler/replica_calculator.go and horizontal.go.
class Keda : public Autoscaler {
 public:
  Keda(const Service& service, bool by_rate) : target_(service.target), by_rate_(by_rate) {}

  PoolChoice decide(const PoolView& view) override {
    const double size = size_of(view);
    if (view.second % 15 != 0) return sized(size);
    const double calls = by_rate_ ? view.offered : view.calls;
    double wish = size;
    if (std::abs(calls / (target_ * size) - 1) > 0.1) wish = std::ceil(calls / target_);
    wishes_.add(wish);
    const double most = std::max(2 * size, size + 4);
    return sized(std::min(std::max(wish, std::min(wishes_.largest(), size)), most));
  }

 private:
  double target_;
  bool by_rate_;
  Window wishes_{20};
};

/// By either metric too. Knative's autoscaler: each 2 s, means of 60 s and of 6 s; panics at 200 %,
/// and doesn't shrink for 60 s after; at most 1000 times more, at least half. knative/serving:
/// pkg/autoscaler/scaling/autoscaler.go.
class Knative : public Autoscaler {
 public:
  Knative(const Service& service, bool by_rate) : target_(service.target), by_rate_(by_rate) {}

  PoolChoice decide(const PoolView& view) override {
    const double calls = by_rate_ ? view.offered : view.calls;
    stable_.add(calls);
    panic_.add(calls);
    if (view.second % 2 != 0) return sized(size_of(view));
    const double ready = std::max<double>(1, view.ready());
    const auto bounded = [&](double wish) {
      return std::clamp(wish, std::floor(ready / 2), 1000 * ready);
    };
    const double quick = std::ceil(panic_.mean() / target_);
    double wish = bounded(std::ceil(stable_.mean() / target_));
    if (quick / ready >= 2)
      panics_since_ = view.second;
    else if (panics_since_ >= 0 && view.second > panics_since_ + 60)
      panics_since_ = -1, most_ = 0;
    if (panics_since_ >= 0) wish = most_ = std::max({most_, wish, bounded(quick)});
    return sized(wish);
  }

 private:
  double target_;
  bool by_rate_;
  Window stable_{60};
  Window panic_{6};
  int panics_since_ = -1;
  double most_ = 0;
};

/// Ray Serve: the mean of 30 s, sent each 10 s; a wish above the size for 30 s, or below it for
/// 600, before it follows. ray-project/ray: python/ray/serve/autoscaling_policy.py. Its control
/// loop runs each 0.1 s; here each second, with the delays in seconds.
class RayServe : public Autoscaler {
 public:
  explicit RayServe(const Service& service) : target_(service.target) {}

  PoolChoice decide(const PoolView& view) override {
    calls_.add(view.calls);
    if (view.second % 10 == 0) sent_ = calls_.mean();
    const double size = size_of(view);
    const double wish = std::max(1.0, std::ceil(sent_ / target_));
    if (wish > size) count_ = std::max(count_, 0) + 1;
    if (wish < size) count_ = std::min(count_, 0) - 1;
    if (wish == size) count_ = 0;
    if (count_ <= 30 && count_ >= -600) return sized(size);
    count_ = 0;
    return sized(wish);
  }

 private:
  double target_;
  Window calls_{30};
  double sent_ = 0;
  int count_ = 0;
};

/// Thresholds of CPU as ElasticRMI has them: above 80 % one member more, below 50 % one fewer, once
/// in a burst interval of 60 s.
class Thresholds : public Autoscaler {
 public:
  PoolChoice decide(const PoolView& view) override {
    busy_.add(view.calls_each);
    if (view.second % 60 != 59) return sized(size_of(view));
    const double change = busy_.mean() > 0.8 ? 1 : busy_.mean() < 0.5 ? -1 : 0;
    return sized(size_of(view) + change);
  }

 private:
  Window busy_{60};
};

class Bound : public Autoscaler {
 public:
  Bound(const Service& service, const std::vector<double>& load) : service_(service), load_(load) {}
  PoolChoice decide(const PoolView& view) override {
    return sized(
        service_.needed(load_[static_cast<std::size_t>(std::lround(view.at / service_.tick_s))]));
  }

 private:
  const Service& service_;
  const std::vector<double>& load_;
};

}  // namespace

const std::vector<std::string>& autoscaler_names() {
  static const std::vector<std::string> names{"bellows", "keda", "keda_rate",  "knative_rate",
                                              "knative", "ray",  "thresholds", "bound"};
  return names;
}

std::unique_ptr<Autoscaler> make_autoscaler(const std::string& name, const Service& service,
                                            const std::vector<double>& load) {
  if (name == "bellows") return std::make_unique<PolicyScaler>(policy_of(service), service.call_s);
  if (name == "keda") return std::make_unique<Keda>(service, false);
  if (name == "keda_rate") return std::make_unique<Keda>(service, true);
  if (name == "knative") return std::make_unique<Knative>(service, false);
  if (name == "knative_rate") return std::make_unique<Knative>(service, true);
  if (name == "ray") return std::make_unique<RayServe>(service);
  if (name == "thresholds") return std::make_unique<Thresholds>();
  if (name == "bound") return std::make_unique<Bound>(service, load);
  return nullptr;
}

}  // namespace bellows::pool
