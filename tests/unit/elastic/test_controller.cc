// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/daemon/controller.h"
#include "tests/unit/elastic/fake_cluster.h"

using namespace bellows;

namespace {

using Clock = Controller::Clock;

struct Names final : UserNames {
  std::string name_of(uid_t uid) override { return "user" + std::to_string(uid); }
};

/// Eight GPUs, of which job 1 has two, and launchers that obey at once.
struct World {
  FakeCluster cluster{2, 4};
  JobBook book;
  ServiceBook services;
  Names names;
  PlanBoard board;
  Metrics metrics;
  std::vector<std::string> said;
  Policy policy;
  Controller controller;
  Clock::time_point start{std::chrono::seconds(5000)};
  std::map<std::uint32_t, std::string> answered;

  explicit World(bool dry = false)
      : controller(
            {cluster, cluster, book, services, names, board, metrics},
            [this](const std::string& text) { said.push_back(text); }, stock_requeue_delay(""),
            dry) {
    policy.controller.emplace();
    policy.controller->dwell_s = 5;
    cluster.add(1, 2, true,
                "bellows/1 tenant=a framework=digits:1.0 gpus=1-8 ckpt=/c controller=@ctl:6830");
  }
  Clock::time_point now() const {
    return start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(cluster.clock));
  }
  bool silent = false;  ///< the launcher takes orders, and never answers
  void report() {
    const SlurmJob& job = cluster.all[1];
    RunReport report;
    report.job = 1;
    report.restarts = job.restarts;
    report.state = RunReport::State::running;
    report.gpus = job.gpus();
    report.step_s = report.gpus > 0 ? 0.4 / report.gpus : 0;
    if (!answered[1].empty() && !silent) report.answer = OrderAnswer{answered[1], true, 1, ""};
    const auto reply = book.take(report, job.uid, now());
    if (reply.ok() && reply->order) answered[1] = reply->order->id;
  }
  void run(double seconds) {
    for (const double end = cluster.clock + seconds; cluster.clock < end;) {
      cluster.advance(0.25);
      if (cluster.all[1].state == SlurmState::running) report();
      controller.tick(policy, now());
    }
  }
  std::uint32_t gpus() { return cluster.all[1].gpus(); }
};

}  // namespace

Test(controller, lets_a_job_grow_as_far_as_it_scales) {
  World world;
  world.run(60);
  cr_expect(world.gpus() == 8, "%u", world.gpus());
  cr_expect(world.cluster.held.empty());
  const auto shown = nlohmann::json::parse(world.board.text());
  cr_expect(shown["acts"] == false && shown["pools"][0]["jobs"][0]["gpus"] == 8);
  cr_expect(shown["last"]["moved"] == 1 && shown["last"]["trouble"] == "");
  cr_expect(world.metrics.text().find("bellowsd_moves_total 2") != std::string::npos, "%s",
            world.metrics.text().c_str());
}

Test(controller, orders_nothing_where_it_only_shows) {
  World world(true);
  world.run(60);
  cr_expect(world.gpus() == 2);
  const auto shown = nlohmann::json::parse(world.board.text());
  cr_expect(shown["pools"][0]["jobs"][0]["planned"] == 4);
}

Test(controller, lets_be_when_the_policy_is_switched_off) {
  World world;
  world.policy.enabled = false;
  world.run(60);
  cr_expect(world.gpus() == 2);
}

Test(controller, does_not_act_on_what_it_could_not_read) {
  World world;
  world.run(4);
  const auto before = world.book.notes();
  cr_assert(before.size() == 1);
  for (const char* what : {"jobs", "nodes"}) {
    world.cluster.before_call = [&world, what](const std::string& call) {
      world.cluster.silent = call == what;
    };
    world.run(30);
    world.cluster.before_call = nullptr;
    world.cluster.silent = false;
    cr_expect(world.gpus() == 2 && world.cluster.all[1].restarts == 0);
    const auto notes = world.book.notes();
    cr_expect(notes.size() == 1 && notes.at(1).speed.seen(), "%s", what);
  }
  cr_assert(world.said.size() == 1, "once for each trouble");
  world.run(60);
  cr_expect(world.said[1] == "slurmctld answers again");
  cr_expect(world.gpus() == 8);
}

Test(controller, clears_what_another_has_left_before_it_acts) {
  World world;
  world.cluster.held["bellows-old"] = {"bellows-old", {"n1"}, {"user1001"}, 1 << 30};
  world.cluster.all[1].reservation = "bellows-old";
  world.run(3);
  cr_expect(world.cluster.held.empty());
  cr_expect(world.cluster.all[1].reservation.empty());
}

Test(controller, plans_by_what_the_policy_says_of_tenants) {
  Policy policy;
  policy.controller.emplace();
  policy.controller->share_by_value = true;
  Tenant& tenant = policy.tenants.emplace_back();
  tenant.name = "a";
  tenant.guarantee.any = 4;
  tenant.weight = 3;
  tenant.quota = Quota{6, ""};
  const PlanTerms terms = plan_terms_of(policy, 7.5);
  const TenantTerms& of_tenant = terms.tenants.at("a");
  cr_expect(of_tenant.guarantee.any == 4 && of_tenant.weight == 3 && of_tenant.limit == 6);
  cr_expect(terms.surplus == Surplus::by_value && terms.objective.restart_s == 7.5);
}

Test(controller, a_start_that_slurm_has_put_off_is_brought_forward) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  world.run(1);
  // By whoever it was: nobody sets a start time.
  cr_assert(world.cluster.requeue(1).ok());
  world.run(1.5);
  cr_assert(job.state == SlurmState::pending && !job.completing);
  cr_expect(job.times.begin <= world.cluster.clock + 10);
  world.run(12);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_node_that_returns_may_end_what_it_has_first) {
  World world;
  world.policy.enabled = true;
  world.policy.controller->dwell_s = 600;
  SlurmJob& job = world.cluster.all[1];
  world.run(1);
  cr_assert(job.nodes.size() == 1 && job.nodes[0].node == "n1");
  world.cluster.lose("n1");
  world.run(14);
  cr_assert(job.state == SlurmState::pending);
  cr_expect(job.times.begin <= world.cluster.clock + 10, "it is to start on the other node");
  const double then = world.cluster.clock;
  world.cluster.return_node("n1");
  world.run(2);
  cr_expect(job.times.begin >= then + 75 && job.times.begin <= then + 77);
  world.run(70);
  cr_expect(job.state == SlurmState::pending && job.times.begin <= then + 77, "it was told once");
  world.run(10);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_slurmctld_that_has_yet_to_hear_the_nodes_has_lost_none) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  world.run(1);
  cr_assert(world.cluster.requeue(1).ok());
  for (SlurmNode& node : world.cluster.all_nodes) node.silent = true;
  world.run(3);
  for (SlurmNode& node : world.cluster.all_nodes) node.silent = false;
  world.run(10);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_node_that_was_silent_for_long_counts_as_lost) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  world.policy.controller->dwell_s = 600;
  for (SlurmNode& node : world.cluster.all_nodes) node.silent = true;
  world.run(12);
  cr_assert(world.cluster.requeue(1).ok());
  for (SlurmNode& node : world.cluster.all_nodes) node.silent = false;
  world.run(60);
  cr_expect(job.state == SlurmState::pending);
  world.run(30);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_node_that_was_booted_has_nothing_to_end) {
  World world;
  world.policy.controller->dwell_s = 600;
  SlurmJob& job = world.cluster.all[1];
  world.run(1);
  world.cluster.lose("n1");
  world.run(14);
  cr_assert(job.state == SlurmState::pending);
  for (SlurmNode& node : world.cluster.all_nodes)
    node.booted = static_cast<std::time_t>(world.cluster.clock);
  world.cluster.return_node("n1");
  world.run(12);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_start_time_that_a_user_sets_stands) {
  for (const std::time_t ahead : {60, 300}) {
    World world;
    SlurmJob& job = world.cluster.all[1];
    world.run(1);
    cr_assert(world.cluster.requeue(1).ok());
    const std::time_t wanted = static_cast<std::time_t>(world.cluster.clock) + ahead;
    job.times.begin = wanted;
    world.run(5);
    cr_expect(job.times.begin == wanted);
  }
}

Test(controller, a_late_start_is_brought_forward_once_slurmctld_takes_it) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  world.run(1);
  cr_assert(world.cluster.requeue(1).ok());
  int refused = 0;
  world.cluster.before_call = [&](const std::string& call) {
    world.cluster.silent = call == "change" && refused < 3;
    if (world.cluster.silent) ++refused;
  };
  world.run(16);
  cr_expect(refused == 3);
  cr_expect(job.state == SlurmState::running);
}

Test(controller, a_run_that_slurmctld_has_forgotten_may_end_first) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  world.run(2);
  world.report();
  // It was killed before it had saved that the job runs; other jobs hold the GPUs for now.
  job.state = SlurmState::pending;
  job.nodes.clear();
  job.times.begin = static_cast<std::time_t>(world.cluster.clock);
  world.cluster.all_nodes[0].available = world.cluster.all_nodes[1].available = false;
  const double then = world.cluster.clock;
  world.run(1.5);
  cr_expect(job.times.begin >= then + 14);
  cr_expect(job.times.begin <= then + 17);
  // Nothing of it reports any more.
  world.cluster.all_nodes[0].available = world.cluster.all_nodes[1].available = true;
  world.run(20);
  cr_expect(job.times.start >= then + 14 && job.times.start <= then + 18);
}

namespace {

/// How often bellowsd asked for a reservation.
struct Reservations {
  int tried = 0;
  explicit Reservations(World& world, bool refused = false) {
    world.cluster.before_call = [this, &world, refused](const std::string& call) {
      tried += call == "reserve";
      world.cluster.silent = refused && call == "reserve";
    };
  }
};

}  // namespace

Test(controller, a_launcher_that_never_answers_does_not_keep_the_nodes_reserved) {
  World world;
  world.silent = true;
  Reservations reservations(world);
  world.run(1200);
  cr_expect(reservations.tried >= 1 && reservations.tried <= 6, "%d", reservations.tried);
}

Test(controller, what_slurm_refuses_is_tried_more_and_more_seldom) {
  World world;
  Reservations reservations(world, true);
  world.run(1200);
  cr_expect(reservations.tried >= 2 && reservations.tried <= 12, "%d", reservations.tried);
  cr_expect(world.said.size() <= 4 * 12, "%zu lines", world.said.size());
  cr_expect(world.metrics.text().find("bellowsd_plans_total 0") != std::string::npos);
}

Test(controller, a_report_of_a_run_that_never_was_moves_no_start) {
  World world;
  SlurmJob& job = world.cluster.all[1];
  job.state = SlurmState::pending;
  job.nodes.clear();
  job.priority = 0;  // it does not start
  world.run(1);
  const std::time_t begin = job.times.begin;
  for (int i = 0; i < 20; ++i) {
    world.report();
    world.run(0.5);
  }
  cr_expect(job.times.begin == begin);
}

Test(controller, pools_take_turns) {
  World world;
  world.cluster.all_nodes[1].partitions = {"other"};
  world.cluster.all[1].nodes = {{"n1", 2, 2}};
  SlurmJob& second = world.cluster.add(2, 2, true, world.cluster.all[1].admin_comment);
  second.partition = "other";
  second.nodes = {{"n2", 2, 2}};
  world.silent = true;  // of job 1; job 2 has no launcher that reports
  world.run(13);
  cr_assert(world.controller.acts());
  cr_expect(world.cluster.held.begin()->second.nodes == std::vector<std::string>{"n1"});
  RunReport report;
  report.job = 2;
  report.state = RunReport::State::running;
  report.gpus = 2;
  report.step_s = 0.1;
  bool has_acted = false;
  for (int i = 0; i < 400 && !has_acted; ++i) {
    cr_assert(world.book.take(report, second.uid, world.now()).ok());
    world.run(0.25);
    for (const auto& [name, held] : world.cluster.held)
      has_acted |= held.nodes == std::vector<std::string>{"n2"};
  }
  cr_expect(has_acted);
}
