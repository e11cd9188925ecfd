// SPDX-License-Identifier: Apache-2.0
// What SPANK asks of bellows-modeld through its client, and a site's list of models.
#include <sched.h>
#include <sys/mount.h>

#include "common/contract.h"
#include "common/fd.h"
#include "common/model_names.h"
#include "modelstore/control/control_client.h"
#include "spank/container/views.h"
#include "spank/model_socket.h"
#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace std::chrono_literals;
using bellows::has;
using model_test::eventually;
using model_test::listen_at;
using model_test::ModelStore;
using model_test::OpenModel;
using model_test::write_file;

namespace {

bellows::ControlClient client_of(const ModelStore& store) {
  auto client = bellows::ControlClient::connect(store.run() + "/control",
                                                bellows::ControlClient::Clock::now() + 20s, 20s);
  cr_assert(client.ok(), "%s", client.ok() ? "" : client.error().text.c_str());
  return *std::move(client);
}

/// A bellows.yaml with one model of tenant a.
void write_site(const ModelStore& store, const std::string& name, const std::string& more = "") {
  write_file(store.path() + "/site.yaml",
             "version: 1\ntenants: {a: , b: }\nmodels:\n- {name: " + name +
                 ", tenant: a, source: " + store.file("m") + more + "}\n");
}

/// With the file as its --site.
void start_with_site(ModelStore& store) {
  write_file(store.file("m"), model_test::one_tensor("w", "data"));
  store.option("--site=" + store.path() + "/site.yaml");
  store.start();
}

}  // namespace

Test(model_site, a_job_is_served_through_the_client, .timeout = 60) {
  ModelStore store;
  store.add("m", "data", "tenant=a,visible=b");
  store.start();
  auto client = client_of(store);
  const std::string path = store.path() + "/job.sock";
  plain::Handle listener;
  listen_at(path, &listener);
  cr_assert(client.serve("17", "b", geteuid(), listener.get()).ok());
  const Status begun = client.prefetch("b", "m");
  cr_assert(begun.ok(), "%s", begun.ok() ? "" : begun.error().text.c_str());
  cr_expect(store.says("loaded "), "without anybody that opens it");
  cr_expect(OpenModel(path, "m").ok());
  const Status hidden = client.prefetch("c", "m");
  cr_assert(!hidden.ok());
  cr_expect(hidden.error().kind == ErrorKind::not_found);
  cr_expect(has(hidden.error().text, "tenant c sees no model m"));
  cr_expect(client.serve("", "b", 0, listener.get()).error().kind == ErrorKind::invalid);
  cr_assert(client.end("17").ok());
  cr_expect_eq(OpenModel(path, "m", 2000).code(), BELLOWS_MODEL_ERR_UNAVAILABLE);
  cr_expect(client.end("17").error().kind == ErrorKind::not_found);
}

Test(model_site, a_daemon_that_hangs_takes_no_longer_than_the_deadline, .timeout = 60) {
  ModelStore store;
  store.start();
  kill(store.pid(), SIGSTOP);
  const auto begun = bellows::ControlClient::Clock::now();
  auto client = bellows::ControlClient::connect(store.run() + "/control", begun + 300ms);
  cr_assert(client.ok());
  const Status ended = client->end("17");
  cr_assert(!ended.ok());
  cr_expect(ended.error().kind == ErrorKind::unavailable);
  cr_expect(has(ended.error().text, "no answer in time"));
  kill(store.pid(), SIGCONT);
}

Test(model_site, who_asks_during_a_restart_waits_for_it, .timeout = 60) {
  ModelStore store;
  store.start();
  store.stop();
  std::optional<Result<bellows::ControlClient>> client;
  std::thread asks([&] {
    client = bellows::ControlClient::connect(store.run() + "/control",
                                             bellows::ControlClient::Clock::now() + 20s, 20s);
  });
  // The daemon ends with the thread that starts it.
  store.start();
  asks.join();
  cr_assert(client->ok(), "%s", client->ok() ? "" : client->error().text.c_str());
  cr_expect((*client)->end("17").error().kind == ErrorKind::not_found);
  const auto none = bellows::ControlClient::connect(
      store.path() + "/none", bellows::ControlClient::Clock::now() + 20s, 20s);
  cr_expect(none.error().kind == ErrorKind::unavailable, "nobody waits where there is no socket");
}

Test(model_site, a_socket_without_a_name_is_not_served_after_a_restart, .timeout = 60) {
  ModelStore store;
  store.start();
  const std::string gone = store.path() + "/gone.sock", stays = store.path() + "/stays.sock";
  {
    auto client = client_of(store);
    plain::Handle listener;
    listen_at(gone, &listener);
    cr_assert(client.serve("1", "a", geteuid(), listener.get()).ok());
    listen_at(stays, &listener);
    cr_assert(client.serve("2", "a", geteuid(), listener.get()).ok());
  }
  store.stop();
  unlink(gone.c_str());
  store.start();
  auto client = client_of(store);
  cr_expect(client.end("1").error().kind == ErrorKind::not_found);
  cr_expect(client.end("2").ok());
}

Test(model_site, a_job_that_a_hanging_daemon_took_late_ends_with_it, .timeout = 60) {
  ModelStore store;
  store.start();
  spank::Settings settings;
  settings.run_dir = store.path() + "/jobs";
  settings.model_store = store.run() + "/control";
  std::filesystem::create_directories(settings.run_dir + "/17");
  const spank::ModelSocket socket(settings, 17);
  // What a prolog does, and leaves when it has waited in vain.
  const auto lend_in_vain = [&] {
    kill(store.pid(), SIGSTOP);
    auto client = bellows::ControlClient::connect(settings.model_store,
                                                  bellows::ControlClient::Clock::now() + 300ms);
    cr_assert(client.ok());
    plain::Handle listener;
    listen_at(socket.path(), &listener);
    cr_assert(client->serve("17", "a", geteuid(), listener.get()).error().kind ==
              ErrorKind::unavailable);
    unlink(socket.path().c_str());
    write_file(settings.run_dir + "/17/models.waited", "");
  };
  lend_in_vain();
  kill(store.pid(), SIGCONT);
  const Status ended = socket.end();
  cr_expect(ended.ok(), "%s", ended.ok() ? "" : ended.error().text.c_str());
  auto client = client_of(store);
  cr_expect(client.end("17").error().kind == ErrorKind::not_found, "it is served for ever");
  // The job may also end before the daemon goes on.
  lend_in_vain();
  cr_expect(socket.end().error().kind == ErrorKind::unavailable);
  kill(store.pid(), SIGCONT);
  cr_expect(client.end("17").error().kind == ErrorKind::not_found, "it is served for ever");
  cr_expect(socket.end().ok(), "what is ended is ended");
}

Test(model_site, a_task_that_comes_after_one_that_waited_in_vain_tells_of_its_gpus, .timeout = 60) {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    cr_skip_test("this needs root, who makes mounts of a job");
  ModelStore store;
  store.start();
  spank::Settings settings;
  settings.run_dir = store.path() + "/jobs";
  settings.model_store = store.run() + "/control";
  std::filesystem::create_directories(settings.run_dir + "/17");
  const auto lease = container::Lease::take(settings.run_dir, 17, container::JobOwner{0, 0});
  cr_assert(lease.ok(), "%s", lease.ok() ? "" : lease.error().text.c_str());
  plain::Handle listener;
  listen_at(settings.run_dir + "/17/models.sock", &listener);
  cr_assert(client_of(store).serve("17", "a", geteuid(), listener.get()).ok());
  write_file(settings.run_dir + "/17/models.waited", "");
  Contract contract;
  contract.extra = {{Contract::kModelsKey, "m"}};
  const spank::ModelSocket socket(settings, 17);
  const Status told = socket.lend_on_gpus({"0000:3b:00.0"}, contract);
  cr_expect(!told.ok() && has(told.error().text, "--gpu-memory"), "bellows-modeld was asked");
  for (const char* mounted : {"/17/user", "/views"})
    cr_expect_eq(::umount2((settings.run_dir + mounted).c_str(), MNT_DETACH), 0);
}

Test(model_site, its_list_is_read_again_on_sighup, .timeout = 60) {
  ModelStore store;
  write_site(store, "one");
  start_with_site(store);
  cr_assert(store.open("one").data("w") == "data");
  cr_expect_eq(store.open("one", "b").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
  write_site(store, "two", ", visible: [b]");
  kill(store.pid(), SIGHUP);
  cr_assert(eventually([&] { return store.open("two", "b").ok(); }));
  cr_expect_eq(store.open("one").code(), BELLOWS_MODEL_ERR_NOT_FOUND);
}

Test(model_site, a_broken_list_changes_nothing_whenever_it_is_read, .timeout = 60) {
  ModelStore store;
  write_site(store, "one");
  start_with_site(store);
  write_file(store.path() + "/site.yaml", "version: 1\nmodels: [x]\n");
  kill(store.pid(), SIGHUP);
  cr_expect(store.says("site.yaml:2:10: a model must be a mapping of key: value; the models stay"));
  cr_expect(store.open("one").ok());
  store.restart();
  cr_expect(store.open("one").ok(), "not after a restart either");
}

Test(model_site, a_model_of_an_unknown_user_is_left_out, .timeout = 60) {
  ModelStore store;
  write_site(store, "one",
             ", user: nobody-of-this-name}\n- {name: two, tenant: a, source: " + store.file("m"));
  start_with_site(store);
  cr_expect(store.says("model one of tenant a is left out: there is no user nobody-of-this-name"));
  cr_expect(store.open("two").ok());
}

Test(model_site, options_of_the_node_come_first, .timeout = 60) {
  ModelStore store;
  store.add("one", "of the option");
  write_site(store, "one");
  start_with_site(store);
  cr_expect(store.open("one").data("w") == "of the option");
  kill(store.pid(), SIGHUP);
  cr_expect(store.open("one").data("w") == "of the option");
}

Test(model_names, are_those_of_the_wire, .timeout = 10) {
  for (const std::string name : {"", "a", "a/b", "/a", "a/", "a//b", ".a", "a/.b", "a.b", "-a", "_",
                                 "a b", "a,b", "a+b", "\xc3\xa9"})
    cr_expect_eq(is_model_name(name), modelwire::is_model_name(name.data(), name.size()), "%s",
                 name.c_str());
  for (const std::size_t size : {255, 256}) {
    const std::string name(size, 'x');
    cr_expect_eq(is_model_name(name), modelwire::is_model_name(name.data(), name.size()));
  }
}
