// SPDX-License-Identifier: Apache-2.0
// A keeper with members that speak gRPC to it, and a Slurm that is a fake.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "pool/command/keeper_client.h"
#include "pool/keeper/keeper.h"
#include "pool/member/keeper_line.h"
#include "pool/wire/pool_place.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

/// A Slurm whose jobs run at once, and end when they are cancelled.
class FakeCluster final : public Cluster {
 public:
  Result<std::uint32_t> submit() override {
    const std::lock_guard lock(mutex_);
    if (refuses_) return Error{ErrorKind::unavailable, "sbatch: not today"};
    SlurmJob job;
    job.id = ++last_;
    job.state = SlurmState::running;
    jobs_[job.id] = job;
    return job.id;
  }
  Status cancel(std::uint32_t job) override {
    end(job);
    return {};
  }
  Result<PoolQueue> jobs() override {
    const std::lock_guard lock(mutex_);
    if (away_) return Error{ErrorKind::unavailable, "slurmctld is away"};
    PoolQueue all{.members = {}, .keeper = keeper_};
    for (const auto& [id, job] : jobs_) all.members.push_back(job);
    return all;
  }

  SlurmJob keeper() {
    const std::lock_guard lock(mutex_);
    return keeper_;
  }
  void set_keeper(const SlurmJob& job) {
    const std::lock_guard lock(mutex_);
    keeper_ = job;
  }
  /// What sbatch has sent, and slurmctld takes only now.
  std::uint32_t take_late() { return *submit(); }

  void end(std::uint32_t job) {
    const std::lock_guard lock(mutex_);
    jobs_.at(job).state = SlurmState::completed;
  }
  void set_away(bool away) {
    const std::lock_guard lock(mutex_);
    away_ = away;
  }
  void set_refuses(bool refuses) {
    const std::lock_guard lock(mutex_);
    refuses_ = refuses;
  }
  std::uint32_t running() {
    const std::lock_guard lock(mutex_);
    std::uint32_t count = 0;
    for (const auto& [id, job] : jobs_) count += job.state == SlurmState::running ? 1 : 0;
    return count;
  }
  std::uint32_t submitted() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  static SlurmJob keeper_job() {
    SlurmJob job;
    job.id = 1000;
    job.state = SlurmState::running;
    return job;
  }

  std::mutex mutex_;
  SlurmJob keeper_ = keeper_job();
  std::map<std::uint32_t, SlurmJob> jobs_;
  std::uint32_t last_ = 0;
  bool away_ = false;
  bool refuses_ = false;
};

template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 10s) {
  const auto end = Clock::now() + limit;
  while (!condition() && Clock::now() < end) std::this_thread::sleep_for(10ms);
  return condition();
}

/// A pool's directory, and a keeper that turns in a thread.
class World {
 public:
  World() {
    key = *make_key();
    cr_assert(replace_file(dir() + "/key.pem", key.key, 0600).ok());
    cr_assert(replace_file(dir() + "/cert.pem", key.certificate, 0600).ok());
  }
  ~World() { stop(); }

  std::string dir() const { return dir_.path(); }
  void start() {
    const auto orders = read_orders(dir());
    cr_assert(orders);
    auto policy = read_policy(dir(), settings);
    cr_assert(policy);
    keeper_ = std::make_unique<PoolKeeper>(dir(), settings, std::move(*policy), *orders, run,
                                           cluster, [](const std::string&) {});
    if (ask) keeper_->set_limit(ask);
    cr_assert(keeper_->open(key, "127.0.0.1").ok());
    stops_ = false;
    turning_ = std::thread([this] {
      while (!stops_ && (last = keeper_->turn(Clock::now() + later.load())) == KeeperTurn::goes_on)
        keeper_->wait(50ms);
    });
  }
  void stop() {
    stops_ = true;
    if (turning_.joinable()) turning_.join();
    keeper_.reset();
  }
  Pool pool() {
    const auto pool = ask_pool(dir());
    cr_assert(pool, "%s", pool ? "" : pool.error().text.c_str());
    return *pool;
  }
  std::uint32_t count(MemberState state) {
    std::uint32_t members = 0;
    const Pool asked = pool();
    for (const Member& member : asked.member()) members += member.state() == state ? 1 : 0;
    return members;
  }
  Result<Pool> scale(std::uint32_t size) {
    ChangeRequest request;
    request.set_scale(size);
    return change_pool(dir(), request);
  }

  PoolSettings settings{.name = "web", .min = 1, .max = 4};
  PoolKey key;
  FakeCluster cluster;
  KeeperRun run{.job = cluster.keeper(), .term = 7};
  std::atomic<KeeperTurn> last = KeeperTurn::goes_on;
  std::atomic<std::chrono::seconds> later{0s};  ///< what its clock says above that of its lists
  SizeLimit::Ask ask;                           ///< empty: nobody limits the pool

 private:
  ScratchDir dir_;
  std::unique_ptr<PoolKeeper> keeper_;
  std::thread turning_;
  std::atomic<bool> stops_ = false;
};

/// `load`: a metric that it has beside.
Report ready_report(std::uint32_t job, double load = 0) {
  Report report;
  report.set_job(job);
  report.set_incarnation(1);
  report.set_address("127.0.0.1:" + std::to_string(job));
  report.set_ready(true);
  Metric* const metric = report.add_metric();
  metric->set_name("load");
  metric->set_value(load);
  return report;
}

/// The agent of a member, in a thread of its own: it says that it is ready until it is told to
/// drain, and ends its job then.
class FakeMember {
 public:
  FakeMember(World& world, std::uint32_t job) : world_(world), job_(job) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeMember() {
    stops_ = true;
    thread_.join();
  }
  std::atomic<bool> drained = false;
  std::atomic<double> load = 0;

 private:
  void run() {
    const auto line = std::move(*KeeperLine::open(world_.dir(), world_.key));
    while (!stops_) {
      line->send(ready_report(job_, load));
      std::this_thread::sleep_for(50ms);
      const auto order = line->take_order();
      if (!order || !order->drain()) continue;
      drained = true;
      world_.cluster.end(job_);
      return;
    }
  }

  World& world_;
  const std::uint32_t job_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace

Test(pool_keeper, has_its_least_size_and_what_a_person_sets, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  cr_assert(world.scale(3));
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  cr_expect_eq(world.cluster.submitted(), 3, "and never more");
  const auto refused = world.scale(5);
  cr_assert_not(refused);
  cr_expect(refused.error().kind == ErrorKind::invalid);
}

Test(pool_keeper, drains_before_it_ends_and_cancels_nobody_who_begins, .timeout = 60) {
  World world;
  world.settings.min = 3;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  const FakeMember first(world, 1), second(world, 2), third(world, 3);
  cr_assert(eventually([&] { return world.count(READY) == 3; }));
  ChangeRequest request;
  request.set_drain_job(2);
  cr_assert(change_pool(world.dir(), request));
  cr_assert(eventually([&] { return second.drained.load(); }));
  cr_expect_not(first.drained || third.drained);
  cr_assert(eventually([&] { return world.cluster.submitted() == 4; }), "another one in its place");
}

Test(pool_keeper, one_that_was_started_again_submits_nothing_twice, .timeout = 60) {
  World world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember first(world, 1), second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  cr_assert(world.scale(3));
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  for (int i = 0; i < 3; ++i) {
    world.stop();
    world.start();
    cr_assert(eventually([&] { return world.count(READY) == 2; }));
    cr_expect_eq(world.pool().wanted(), 3, "what a person has set is not forgotten");
  }
  cr_expect_eq(world.cluster.submitted(), 3);
  cr_expect_not(first.drained || second.drained);
}

Test(pool_keeper, does_nothing_while_slurm_gives_no_answer, .timeout = 60) {
  World world;
  world.cluster.set_away(true);
  world.start();
  cr_assert(eventually([&] { return !world.pool().trouble().empty(); }));
  cr_expect_eq(world.cluster.submitted(), 0);
  world.cluster.set_away(false);
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  cr_expect(eventually([&] { return world.pool().trouble().empty(); }));
}

Test(pool_keeper, says_why_slurm_refuses_a_member, .timeout = 60) {
  World world;
  world.cluster.set_refuses(true);
  world.start();
  cr_assert(eventually([&] { return world.pool().trouble() == "sbatch: not today"; }));
  world.cluster.set_refuses(false);
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  cr_expect(eventually([&] { return world.pool().trouble().empty(); }));
}

Test(pool_keeper, ends_when_all_have_drained, .timeout = 60) {
  World world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember first(world, 1), second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  ChangeRequest request;
  request.set_end(true);
  cr_assert(change_pool(world.dir(), request));
  cr_assert(eventually([&] { return world.last == KeeperTurn::pool_ended; }));
  cr_expect(first.drained && second.drained);
  cr_expect_eq(world.cluster.running(), 0);
}

Test(pool_keeper, who_has_another_key_or_none_is_refused, .timeout = 60) {
  World world;
  world.start();
  const auto place = read_keeper(world.dir());
  cr_assert(place);
  const auto code_with = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 3s);
    Pool pool;
    return Keeper::NewStub(channel)->Show(&context, ShowRequest(), &pool).error_code();
  };
  cr_expect_eq(code_with(open_channel(place->address(), world.key)), grpc::StatusCode::OK);
  cr_expect_neq(code_with(open_channel(place->address(), *make_key())), grpc::StatusCode::OK);
  // It knows the certificate, which is no secret, and not the key.
  const grpc::SslCredentialsOptions options{
      .pem_root_certs = world.key.certificate, .pem_private_key = {}, .pem_cert_chain = {}};
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("bellows-pool");
  cr_expect_neq(code_with(grpc::CreateCustomChannel(place->address(), grpc::SslCredentials(options),
                                                    arguments)),
                grpc::StatusCode::OK);
}

Test(pool_keeper, a_member_that_slurm_does_not_know_is_none, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember forged(world, 4711);
  cr_expect_not(eventually([&] { return world.count(READY) > 0; }, 1s));
}

Test(pool_keeper, callers_see_members_come_and_go, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const auto stub = Keeper::NewStub(open_channel(read_keeper(world.dir())->address(), world.key));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  const auto reader = stub->Watch(&context, WatchRequest());
  const FakeMember first(world, 1);
  Members members;
  while (reader->Read(&members) && members.member_size() == 0) {
  }
  cr_assert_eq(members.member_size(), 1);
  cr_expect_eq(members.member(0).address(), "127.0.0.1:1");
  cr_expect_eq(members.member(0).state(), READY);
  ChangeRequest request;
  request.set_drain_job(1);
  cr_assert(change_pool(world.dir(), request));
  while (reader->Read(&members) && members.member_size() == 1 &&
         members.member(0).state() == READY) {
  }
  cr_expect(members.member_size() == 0 || members.member(0).state() == DRAINING);
}

Test(pool_keeper, has_the_size_that_its_policy_finds_in_metrics, .timeout = 60) {
  World world;
  world.settings.max = 3;
  cr_assert(replace_file(world.dir() + "/policy.yaml",
                         "max: 9\nstabilisation: 1\npanic_window: 0\n"
                         "targets: [{metric: load, per_member: 10}]\n",
                         0600)
                .ok());
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  FakeMember first(world, 1);
  first.load = 20;
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  first.load = 500;
  cr_assert(eventually([&] { return world.cluster.running() == 3; }), "and not beyond its most");
  FakeMember third(world, 3);
  cr_assert(eventually([&] { return world.count(READY) == 3; }));
  first.load = 1;
  cr_assert(eventually([&] { return third.drained && second.drained; }), "the youngest go");
  cr_expect_not(first.drained);
}

namespace {

/// bellowsd, as far as a keeper knows it.
class FakeController {
 public:
  Result<ServiceReply> answer(const ServiceReport& report) {
    const std::lock_guard lock(mutex_);
    newest = report;
    ++asked;
    if (!members) return Error{ErrorKind::unavailable, "bellowsd is away"};
    return ServiceReply{.again_s = 0.05, .members = members};
  }
  void set(std::optional<std::uint32_t> count) {
    const std::lock_guard lock(mutex_);
    members = count;
  }
  std::uint32_t leaving() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::uint32_t>(newest.leaving.size());
  }
  std::uint32_t wanted() {
    const std::lock_guard lock(mutex_);
    return newest.wanted;
  }

  std::atomic<int> asked = 0;

 private:
  std::mutex mutex_;
  ServiceReport newest;
  std::optional<std::uint32_t> members;
};

}  // namespace

Test(pool_limit, has_no_more_members_than_bellowsd_lets_it_have, .timeout = 60) {
  FakeController controller;
  World world;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  controller.set(2);
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(world.scale(4));
  cr_assert(eventually([&] { return controller.wanted() == 4; }), "it is told the whole wish");
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 2; }, 1s));
  cr_expect(world.pool().why().find("bellowsd lets it have 2 now") != std::string::npos, "%s",
            world.pool().why().c_str());
  controller.set(3);
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  const FakeMember third(world, 3);
  cr_assert(eventually([&] { return world.count(READY) == 3; }));
  controller.set(1);
  cr_assert(eventually([&] { return second.drained && third.drained; }), "they end their calls");
  cr_expect_not(first.drained);
}

Test(pool_limit, members_that_begin_are_not_left_above_it, .timeout = 60) {
  FakeController controller;
  World world;
  world.settings.min = 2;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  controller.set(4);
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember first(world, 1), second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  cr_assert(world.scale(4));
  cr_assert(eventually([&] { return world.cluster.running() == 4; }));
  controller.set(1);
  cr_assert(eventually([&] { return world.cluster.running() == 2; }), "its least is its own");
  cr_expect_not(first.drained || second.drained);
}

Test(pool_limit, a_bellowsd_that_is_away_is_no_reason_to_act, .timeout = 60) {
  FakeController controller;
  World world;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  cr_assert(world.scale(3));
  cr_assert(eventually([&] { return controller.wanted() == 3; }));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 1; }, 1s));
  cr_expect(world.pool().why().find("bellowsd is away") != std::string::npos);
  controller.set(2);
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  controller.set(std::nullopt);
  const int before = controller.asked;
  cr_assert(eventually([&] { return controller.asked > before; }));
  cr_expect_not(eventually([&] { return second.drained || world.cluster.submitted() > 2; }, 1s));
  ChangeRequest request;
  request.set_drain_job(1);
  cr_assert(change_pool(world.dir(), request));
  cr_assert(eventually([&] { return world.cluster.submitted() == 3; }),
            "one that goes is replaced");
  cr_expect(eventually([&] { return controller.leaving() == 1 || first.drained; }));
}

Test(pool_keeper, a_connection_is_that_of_one_member, .timeout = 60) {
  World world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const auto stub = Keeper::NewStub(open_channel(read_keeper(world.dir())->address(), world.key));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  const auto line = stub->Attend(&context);
  cr_assert(line->Write(ready_report(1)));
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  Report other = ready_report(2);
  (void)line->Write(other);
  pool::Order order;
  while (line->Read(&order)) {
  }
  cr_expect_eq(line->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  cr_expect_leq(world.count(READY), 1);
}

Test(pool_term, who_was_replaced_ends_and_does_nothing_any_more, .timeout = 60) {
  World world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  KeeperPlace place = *read_keeper(world.dir());
  cr_expect_eq(place.term, 7);
  place.term = 8;
  cr_assert(write_keeper(world.dir(), place).ok());
  world.cluster.end(1);
  cr_assert(eventually([&] { return world.last == KeeperTurn::replaced; }));
  cr_expect_eq(world.cluster.submitted(), 2);
}

Test(pool_term, a_run_of_before_ends_when_slurm_says_so, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  SlurmJob now = world.cluster.keeper();
  now.restarts = 1;
  now.state = SlurmState::pending;
  world.cluster.set_keeper(now);
  cr_assert(eventually([&] { return !world.pool().trouble().empty(); }));
  world.cluster.end(1);
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 1; }, 1500ms),
                "its job does not run");
  now.state = SlurmState::running;
  world.cluster.set_keeper(now);
  cr_assert(eventually([&] { return world.last == KeeperTurn::replaced; }));
  cr_expect_eq(world.cluster.submitted(), 1);
}

Test(pool_term, what_slurm_said_long_ago_is_no_reason_to_act, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  cr_assert(world.scale(2));
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  world.later = 11s;
  cr_assert(world.scale(1));
  cr_expect_not(eventually([&] { return first.drained || second.drained; }, 1s));
  cr_assert(world.scale(3));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 2; }, 1s));
  cr_expect_eq(world.count(READY), 2, "callers go on");
  world.later = 0s;
  cr_assert(eventually([&] { return world.cluster.submitted() == 3; }));
}

Test(pool_term, a_keeper_of_before_cannot_take_the_pool_back, .timeout = 60) {
  World world;
  world.start();
  const KeeperPlace own = *read_keeper(world.dir());
  const KeeperPlace before{.host = "n1", .port = 1, .job = 999, .term = 6};
  KeeperSeat seat(world.dir());
  cr_expect(seat.take(before).error().kind == ErrorKind::busy);
  cr_expect(*read_keeper(world.dir()) == own);
  // It may have looked before the other one came.
  cr_assert(write_keeper(world.dir(), before).ok());
  cr_expect(eventually([&] { return *read_keeper(world.dir()) == own; }), "and it is put right");
  cr_expect(world.last == KeeperTurn::goes_on);
  cr_expect_gt(next_term(world.dir()), own.term);
  cr_assert(
      write_keeper(world.dir(), {.host = "n1", .port = 1, .job = 9, .term = UINT32_MAX}).ok());
  cr_expect_eq(next_term(world.dir()), std::uint64_t{UINT32_MAX} + 1, "clocks may go wrong");
}

Test(pool_term, who_cannot_read_whether_it_has_the_pool_waits, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const std::string file = world.dir() + "/keeper.json";
  const KeeperPlace own = *read_keeper(world.dir());
  const auto stub = Keeper::NewStub(open_channel(own.address(), world.key));
  const auto trouble = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    Pool pool;
    cr_assert(stub->Show(&context, ShowRequest(), &pool).ok());
    return pool.trouble();
  };
  cr_assert_eq(unlink(file.c_str()), 0);
  cr_assert(eventually([&] { return read_keeper(world.dir()).ok(); }), "one that is lost is made");
  cr_assert_eq(unlink(file.c_str()), 0);
  cr_assert_eq(mkdir(file.c_str(), 0700), 0);
  cr_assert(eventually([&] { return trouble().find("keeper.json") != std::string::npos; }));
  cr_assert_eq(rmdir(file.c_str()), 0);
  cr_assert(eventually([&] { return trouble().empty(); }));
  cr_expect(world.last == KeeperTurn::goes_on);
}

Test(pool_term, members_follow_no_keeper_of_before, .timeout = 60) {
  World world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const auto line = std::move(*KeeperLine::open(world.dir(), world.key));
  line->send(ready_report(1));
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  world.stop();
  World cut_off;
  cut_off.run.term = 6;
  cut_off.start();
  cr_assert(write_keeper(world.dir(), *read_keeper(cut_off.dir())).ok());
  std::string trouble;
  cr_expect(eventually([&] {
    line->send(ready_report(1));
    if (const auto told = line->take_trouble()) trouble = *told;
    return trouble.find("a keeper of before") != std::string::npos;
  }));
}

Test(pool_keeper, takes_back_what_slurm_takes_late, .timeout = 60) {
  World world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  (void)world.cluster.take_late();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  cr_expect_eq(world.cluster.submitted(), 3);
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 3; }, 500ms));
}

Test(pool_channel, an_answer_may_be_as_large_as_those_of_elastic_objects, .timeout = 60) {
  struct Talker final : Keeper::Service {
    grpc::Status Show(grpc::ServerContext*, const ShowRequest*, Pool* pool) override {
      pool->set_why(std::string(std::size_t{5} << 20U, 'x'));
      return grpc::Status::OK;
    }
  } talker;
  const PoolKey key = *make_key();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", server_credentials(key), &port);
  builder.RegisterService(&talker);
  const auto server = builder.BuildAndStart();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  Pool pool;
  const auto status = Keeper::NewStub(open_channel(fmt::format("127.0.0.1:{}", port), key))
                          ->Show(&context, ShowRequest(), &pool);
  cr_expect(status.ok(), "%s", status.error_message().c_str());
  cr_expect_eq(pool.why().size(), std::size_t{5} << 20U);
  server->Shutdown();
}

Test(pool_place, a_pool_of_somebody_else_is_refused) {
  const ScratchDir pools;
  setenv("BELLOWS_POOLS", pools.path().c_str(), 1);
  cr_assert_eq(mkdir((pools.path() + "/web").c_str(), 0700), 0);
  cr_expect(find_pool("web").ok());
  cr_assert_eq(chmod((pools.path() + "/web").c_str(), 0777), 0);
  cr_assert_not(find_pool("web"));
  cr_expect(find_pool("web").error().kind == ErrorKind::denied);
  cr_assert_eq(chmod((pools.path() + "/web").c_str(), 0700), 0);
  if (geteuid() == 0) {
    cr_assert_eq(chown((pools.path() + "/web").c_str(), 65534, 65534), 0);
    cr_expect_not(find_pool("web"));
  }
}
