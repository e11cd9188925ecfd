// SPDX-License-Identifier: Apache-2.0
// What bellowsd's reservations are for Slurm. libslurm's own calls to slurmctld give way to those
// here.
#include <criterion/criterion.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "slurm/compat.h"
#include "slurm/places_client.h"

using namespace bellows;

namespace {

struct Asked {
  std::string name;
  std::string nodes;
  std::string users;
  std::uint64_t flags = 0;
  std::time_t end = 0;
};
Asked asked;
int refusal = 0;  ///< error of slurmctld; 0: it does what it is asked

int answer() {
  errno = refusal;
  return refusal == 0 ? SLURM_SUCCESS : SLURM_ERROR;
}

}  // namespace

extern "C" {
// There is no slurm.conf.
void slurm_init(const char*) {}

char* slurm_create_reservation(resv_desc_msg_t* request) {
  asked = {request->name, request->node_list, request->users, request->flags, request->end_time};
  if (answer() != SLURM_SUCCESS) return nullptr;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  return slurm_xstrdup(request->name);
#else
  return strdup(request->name);
#endif
}
int slurm_update_reservation(resv_desc_msg_t* request) {
  asked.name = request->name;
  asked.end = request->end_time;
  return answer();
}
int slurm_delete_reservation(reservation_name_msg_t* request) {
  asked.name = request->name;
  return answer();
}
}

namespace {

Status reserve() {
  SlurmClient client;
  return PlacesClient(client).reserve({"bellows-1", {"n1", "n2"}, {"alice", "bob"}, 1000, 2000});
}

}  // namespace

Test(places_client, a_reservation_neither_hinders_its_jobs_nor_holds_them) {
  cr_assert(reserve().ok());
  cr_expect(asked.name == "bellows-1" && asked.nodes == "n1,n2" && asked.users == "alice,bob");
  cr_expect(asked.end == 2000);
  cr_expect((asked.flags & RESERVE_FLAG_IGN_JOBS) != 0, "running jobs would forbid it");
  cr_expect((asked.flags & RESERVE_FLAG_FLEX) != 0, "its jobs would have to end before it does");
  cr_expect((asked.flags & RESERVE_FLAG_NO_HOLD_JOBS) != 0, "its jobs would be held at its end");
}

Test(places_client, tells_a_reservation_that_is_gone_from_a_slurmctld_that_is) {
  SlurmClient client;
  PlacesClient places(client);
  cr_assert(places.extend("bellows-1", 3000).ok());
  cr_expect(asked.name == "bellows-1" && asked.end == 3000);
  refusal = ESLURM_RESERVATION_INVALID;
  cr_expect(places.extend("bellows-1", 4000).error().kind == ErrorKind::not_found);
  cr_expect(places.unreserve("bellows-1").error().kind == ErrorKind::not_found);
  refusal = SLURM_COMMUNICATIONS_CONNECTION_ERROR;
  cr_expect(places.extend("bellows-1", 4000).error().kind == ErrorKind::unavailable);
  cr_expect(places.unreserve("bellows-1").error().kind == ErrorKind::unavailable);
  cr_expect(reserve().error().kind == ErrorKind::unavailable);
}
