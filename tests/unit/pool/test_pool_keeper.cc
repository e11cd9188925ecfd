// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/pool/keeper_world.h"

using namespace bellows;
using namespace bellows::pool;

Test(pool_keeper, has_its_least_size_and_what_a_person_sets, .timeout = 60) {
  KeeperWorld world;
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
  KeeperWorld world;
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
  WorkingWorld world;
  cr_assert(world.scale(3));
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  for (int i = 0; i < 3; ++i) {
    world.stop();
    world.start();
    cr_assert(eventually([&] { return world.count(READY) == 2; }));
    cr_expect_eq(world.pool().wanted(), 3, "what a person has set is not forgotten");
  }
  cr_expect_eq(world.cluster.submitted(), 3);
  cr_expect_not(world.first->drained || world.second->drained);
}

Test(pool_keeper, one_that_was_started_again_cancels_nobody_who_works, .timeout = 60) {
  WorkingWorld world;
  world.stop();
  cr_assert(write_orders(world.dir(), {.size = 0, .ends = true}).ok());
  world.start();
  cr_assert(eventually([&] { return world.last == KeeperTurn::pool_ended; }));
  cr_expect(world.first->drained && world.second->drained);
  cr_expect_eq(world.cluster.cancelled, 0);
}

Test(pool_keeper, does_nothing_while_slurm_gives_no_answer, .timeout = 60) {
  KeeperWorld world;
  world.cluster.set_away(true);
  world.start();
  cr_assert(eventually([&] { return !world.pool().trouble().empty(); }));
  cr_expect_eq(world.cluster.submitted(), 0);
  world.cluster.set_away(false);
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  cr_expect(eventually([&] { return world.pool().trouble().empty(); }));
}

Test(pool_keeper, says_why_slurm_refuses_a_member, .timeout = 60) {
  KeeperWorld world;
  world.cluster.set_refuses(true);
  world.start();
  cr_assert(eventually([&] { return world.pool().trouble() == "sbatch: not today"; }));
  world.cluster.set_refuses(false);
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  cr_expect(eventually([&] { return world.pool().trouble().empty(); }));
}

Test(pool_keeper, ends_when_all_have_drained, .timeout = 60) {
  WorkingWorld world;
  ChangeRequest request;
  request.set_end(true);
  cr_assert(change_pool(world.dir(), request));
  cr_assert(eventually([&] { return world.last == KeeperTurn::pool_ended; }));
  cr_expect(world.first->drained && world.second->drained);
  cr_expect_eq(world.cluster.running(), 0);
}

Test(pool_keeper, does_not_end_while_a_member_is_being_submitted, .timeout = 60) {
  KeeperWorld world;
  world.cluster.holds = true;
  world.start();
  cr_assert(eventually([&] { return world.cluster.asked.load(); }));
  ChangeRequest request;
  request.set_end(true);
  cr_assert(change_pool(world.dir(), request));
  cr_expect_not(eventually([&] { return world.last == KeeperTurn::pool_ended; }, 500ms));
  world.cluster.holds = false;
  cr_assert(eventually([&] { return world.last == KeeperTurn::pool_ended; }));
  cr_expect_eq(world.cluster.submitted(), 1);
  cr_expect_eq(world.cluster.running(), 0);
}

Test(pool_keeper, who_has_another_key_or_none_is_refused, .timeout = 60) {
  KeeperWorld world;
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
  KeeperWorld world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember forged(world, 4711);
  cr_expect_not(eventually([&] { return world.count(READY) > 0; }, 1s));
}

Test(pool_keeper, callers_see_members_come_and_go, .timeout = 60) {
  KeeperWorld world;
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
  KeeperWorld world;
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

Test(pool_keeper, a_connection_is_that_of_one_member, .timeout = 60) {
  KeeperWorld world;
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

Test(pool_keeper, takes_back_what_slurm_takes_late, .timeout = 60) {
  KeeperWorld world;
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
