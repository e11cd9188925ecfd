// SPDX-License-Identifier: Apache-2.0
#include "pool/command/keeper_client.h"

#include <fmt/core.h>

#include "common/text.h"
#include "pool/wire/channel.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostShown = 300;

Error error_of(const grpc::Status& status, const KeeperPlace& place) {
  const std::string said = one_line(status.error_message(), kMostShown);
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT)
    return Error{ErrorKind::invalid, said};
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
    return Error{ErrorKind::denied, said};
  return Error{ErrorKind::unavailable,
               fmt::format("the pool's keeper, job {} at {}, does not answer: {}", place.job,
                           place.address(), said)};
}

template <typename Ask>
Result<Pool> ask(const std::string& dir, std::chrono::milliseconds limit, Ask ask_keeper) {
  const auto place = read_keeper(dir);
  if (!place && place.error().kind == ErrorKind::not_found)
    return Error{ErrorKind::unavailable, place.error().text};
  if (!place) return place.error();
  const auto key = read_key(dir);
  if (!key) return key.error();
  const auto stub = Keeper::NewStub(open_channel(place->address(), *key));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  Pool pool;
  const grpc::Status status = ask_keeper(*stub, context, pool);
  if (!status.ok()) return error_of(status, *place);
  return pool;
}

}  // namespace

Result<Pool> ask_pool(const std::string& dir, std::chrono::milliseconds limit) {
  return ask(dir, limit, [](Keeper::Stub& stub, grpc::ClientContext& context, Pool& pool) {
    return stub.Show(&context, ShowRequest(), &pool);
  });
}

Result<Pool> change_pool(const std::string& dir, const ChangeRequest& change,
                         std::chrono::milliseconds limit) {
  return ask(dir, limit, [&](Keeper::Stub& stub, grpc::ClientContext& context, Pool& pool) {
    return stub.Change(&context, change, &pool);
  });
}

}  // namespace bellows::pool
