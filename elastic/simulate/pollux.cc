// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/pollux.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "elastic/simulate/pollux_problem.h"

namespace bellows {
namespace {

struct Individual {
  double cost;
  PolluxState state;
};

/// The genetic search for one decision.
class Search {
 public:
  Search(PolluxProblem& problem, const PolluxSearch& terms, std::mt19937& random)
      : problem_(problem),
        terms_(terms),
        random_(random),
        nodes_(problem.nodes()),
        jobs_(static_cast<std::uint32_t>(problem.jobs())),
        order_(nodes_) {}

  std::vector<PolluxState> run(std::vector<PolluxState> states) {
    std::vector<Individual> population;
    for (PolluxState& state : states) add(population, std::move(state));
    for (std::uint32_t g = 0; g < terms_.generations; ++g) {
      const std::size_t parents = population.size();
      while (population.size() < parents + terms_.population) breed(population, parents);
      keep_best(population);
    }
    states.clear();
    for (Individual& individual : population) states.push_back(std::move(individual.state));
    return states;
  }

 private:
  std::uint32_t below(std::size_t limit) {
    return static_cast<std::uint32_t>((std::uint64_t{random_()} * limit) >> 32);
  }
  bool happens(double probability) { return static_cast<double>(random_()) < probability * 0x1p32; }

  void add(std::vector<Individual>& population, PolluxState state) {
    repair(state);
    const double cost = problem_.cost(state);
    population.push_back({cost, std::move(state)});
  }

  const PolluxState& choose(const std::vector<Individual>& population, std::size_t parents) {
    const Individual& a = population[below(parents)];
    const Individual& b = population[below(parents)];
    return a.cost < b.cost ? a.state : b.state;
  }

  // Two parents exchange the rows of the jobs before one of them.
  void breed(std::vector<Individual>& population, std::size_t parents) {
    PolluxState a = choose(population, parents);
    PolluxState b = choose(population, parents);
    std::swap_ranges(a.begin(), a.begin() + below(jobs_) * nodes_, b.begin());
    for (PolluxState* child : {&a, &b}) {
      mutate(*child);
      add(population, std::move(*child));
    }
  }

  void keep_best(std::vector<Individual>& population) const {
    std::sort(population.begin(), population.end(),
              [](const Individual& a, const Individual& b) { return a.cost < b.cost; });
    const auto same = [](const Individual& a, const Individual& b) {
      return a.cost == b.cost && a.state == b.state;
    };
    population.erase(std::unique(population.begin(), population.end(), same), population.end());
    if (population.size() > terms_.population) population.resize(terms_.population);
  }

  void mutate(PolluxState& state) {
    for (std::uint32_t j = 0; j < jobs_; ++j) {
      const auto row = state.begin() + j * nodes_;
      if (happens(0.1)) std::copy_n(problem_.held().begin() + j * nodes_, nodes_, row);
      if (!happens(0.1)) continue;
      for (auto gpus = row; gpus != row + nodes_; ++gpus)
        if (*gpus > 0 && happens(0.1)) *gpus = 0;
    }
    for (std::uint32_t n = 0; n < nodes_; ++n) grow_on(state, n);
  }

  // About one job gets free GPUs of the node, and about one of those that have some already.
  void grow_on(PolluxState& state, std::uint32_t node) {
    std::uint32_t used = 0;
    std::uint32_t present = 0;
    for (std::uint32_t j = 0; j < jobs_; ++j) {
      used += state[j * nodes_ + node];
      present += state[j * nodes_ + node] > 0;
    }
    if (used >= problem_.gpus_per_node()) return;
    const double any = 1.0 / jobs_;
    for (std::uint32_t j = 0; j < jobs_; ++j) {
      std::uint8_t& gpus = state[j * nodes_ + node];
      const double again = gpus > 0 ? 1.0 / present : 0;
      if (happens(any + again - any * again))
        gpus = static_cast<std::uint8_t>(gpus + below(problem_.gpus_per_node() + 1U - gpus));
    }
  }

  void repair(PolluxState& state) {
    keep_one_spread_job(state);
    PolluxState left(nodes_, static_cast<std::uint8_t>(problem_.gpus_per_node()));
    for (std::uint32_t j = 0; j < jobs_; ++j) {
      std::uint8_t* row = state.data() + j * nodes_;
      limit_job(row, problem_.most_gpus(j));
      for (std::uint32_t n = 0; n < nodes_; ++n) {
        row[n] = std::min(row[n], left[n]);
        left[n] = static_cast<std::uint8_t>(left[n] - row[n]);
      }
    }
  }

  // Of the jobs with ranks on several nodes, only the first on each.
  void keep_one_spread_job(PolluxState& state) const {
    std::vector<bool> taken(nodes_);
    for (std::uint32_t j = 0; j < jobs_; ++j) {
      std::uint8_t* row = state.data() + j * nodes_;
      if (nodes_ - std::count(row, row + nodes_, 0) <= 1) continue;
      for (std::uint32_t n = 0; n < nodes_; ++n) {
        if (row[n] == 0) continue;
        if (taken[n]) row[n] = 0;
        taken[n] = true;
      }
    }
  }

  // What a job has too much of, it loses on nodes chosen by chance.
  void limit_job(std::uint8_t* row, std::uint32_t most) {
    if (std::accumulate(row, row + nodes_, 0U) <= most) return;
    std::iota(order_.begin(), order_.end(), 0U);
    for (std::uint32_t n = nodes_; n > 1; --n) std::swap(order_[n - 1], order_[below(n)]);
    for (const std::uint32_t n : order_) {
      row[n] = static_cast<std::uint8_t>(std::min<std::uint32_t>(row[n], most));
      most -= row[n];
    }
  }

  PolluxProblem& problem_;
  const PolluxSearch& terms_;
  std::mt19937& random_;
  std::uint32_t nodes_;
  std::uint32_t jobs_;
  std::vector<std::uint32_t> order_;
};

class Pollux : public Scheduler {
 public:
  Pollux(const ClusterShape& shape, const PolluxSearch& search)
      : shape_(shape), search_(search), random_(search.seed) {}

  BatchRule batch_rule() const override { return BatchRule::adapted; }

  std::vector<NodeGpus> decide(double now, const std::vector<const SimulatedJob*>& jobs) override {
    std::vector<std::size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return jobs[a]->service(now) < jobs[b]->service(now);
    });
    std::vector<const SimulatedJob*> sorted;
    for (const std::size_t j : order) sorted.push_back(jobs[j]);
    PolluxProblem problem(now, sorted, shape_, search_.restart_s, tables_);
    last_ = Search(problem, search_, random_).run(first_states(problem, sorted));
    last_jobs_ = sorted;
    std::vector<NodeGpus> placed(jobs.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto row = last_.front().begin() + static_cast<std::ptrdiff_t>(i * shape_.nodes);
      placed[order[i]].assign(row, row + shape_.nodes);
    }
    return placed;
  }

 private:
  // The population of the last decision, for the jobs of this one.
  std::vector<PolluxState> first_states(const PolluxProblem& problem,
                                        const std::vector<const SimulatedJob*>& jobs) const {
    if (last_.empty()) return {problem.held()};
    std::vector<PolluxState> states(last_.size(), PolluxState(jobs.size() * shape_.nodes));
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const auto before = std::find(last_jobs_.begin(), last_jobs_.end(), jobs[j]);
      if (before == last_jobs_.end()) continue;
      const auto from = (before - last_jobs_.begin()) * shape_.nodes;
      const auto to = static_cast<std::ptrdiff_t>(j * shape_.nodes);
      for (std::size_t i = 0; i < last_.size(); ++i)
        std::copy_n(last_[i].begin() + from, shape_.nodes, states[i].begin() + to);
    }
    return states;
  }

  ClusterShape shape_;
  PolluxSearch search_;
  std::mt19937 random_;
  std::map<const SimulatedJob*, GoodputTable> tables_;
  std::vector<PolluxState> last_;
  std::vector<const SimulatedJob*> last_jobs_;
};

}  // namespace

std::unique_ptr<Scheduler> make_pollux(const ClusterShape& shape, const PolluxSearch& search) {
  return std::make_unique<Pollux>(shape, search);
}

}  // namespace bellows
