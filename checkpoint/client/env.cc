// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/wire/wire.h"

namespace bellows::client {

int ErrorText::set(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  step = wire::kNoStep;
  return code;
}

// Decimal digits only, at most 9 of them.
static bool parse_number(const char* text, std::int32_t* out) {
  std::int32_t value = 0;
  std::size_t n = 0;
  for (; text[n] >= '0' && text[n] <= '9' && n < 9; ++n) value = value * 10 + (text[n] - '0');
  if (n == 0 || text[n] != 0) return false;
  *out = value;
  return true;
}

static const char* variable(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

// The first variable of the list that is set.
static int from_environment(const char* const* names, std::int32_t fallback, std::int32_t* out,
                            ErrorText* error) {
  for (; *names; ++names) {
    const char* value = variable(*names);
    if (!value) continue;
    if (parse_number(value, out)) return BELLOWS_OK;
    return error->set(BELLOWS_ERR_INVALID, "%s=%s is not a number", *names, value);
  }
  *out = fallback;
  return BELLOWS_OK;
}

static int find_rank(const bellows_config& config, Place* place, ErrorText* error) {
  // Slurm sets its variables in every job; they count ranks only where Bellows started the ranks.
  static const char* const kJobRank[] = {"BELLOWS_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK", nullptr};
  static const char* const kJobWorld[] = {"BELLOWS_WORLD_SIZE", "SLURM_NTASKS",
                                          "OMPI_COMM_WORLD_SIZE", nullptr};
  static const char* const kRank[] = {"BELLOWS_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", nullptr};
  static const char* const kWorld[] = {"BELLOWS_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", nullptr};
  place->rank = config.rank;
  place->world = config.world;
  int rc = BELLOWS_OK;
  if (config.rank < 0) {
    rc = from_environment(place->in_job ? kJobRank : kRank, 0, &place->rank, error);
  }
  if (rc == BELLOWS_OK && config.world < 0) {
    rc = from_environment(place->in_job ? kJobWorld : kWorld, 1, &place->world, error);
  }
  if (rc != BELLOWS_OK) return rc;
  if (place->world < 1 || place->world > static_cast<std::int32_t>(wire::kMostWorld) ||
      place->rank >= place->world) {
    return error->set(
        BELLOWS_ERR_INVALID,
        "rank %d of %d ranks is not possible: ranks are numbered from 0; set both rank and "
        "world, or neither",
        place->rank, place->world);
  }
  return BELLOWS_OK;
}

int find_place(const bellows_config& config, Place* place, ErrorText* error) {
  const char* socket = variable("BELLOWS_SOCKET");
  place->in_job = socket != nullptr;
  if (socket && snprintf(place->socket, sizeof place->socket, "%s", socket) >=
                    static_cast<int>(sizeof place->socket)) {
    return error->set(BELLOWS_ERR_INVALID, "BELLOWS_SOCKET=%s is longer than 107 bytes", socket);
  }
  const char* attempt = variable("BELLOWS_ATTEMPT");
  if (socket && !attempt) {
    return error->set(
        BELLOWS_ERR_INVALID,
        "BELLOWS_SOCKET is set and BELLOWS_ATTEMPT is not: pass on all variables that "
        "bellows run sets");
  }
  if (socket) snprintf(place->attempt, sizeof place->attempt, "%s", attempt);
  int rc = find_rank(config, place, error);
  if (rc != BELLOWS_OK) return rc;
  if (config.keep < 0) {
    return error->set(BELLOWS_ERR_INVALID, "keep is %d: it is the number of steps to keep, 0 for 3",
                      config.keep);
  }
  place->keep = config.keep ? config.keep : 3;
  place->keep_every = config.keep_every;
  if (place->in_job) return BELLOWS_OK;
  const char* dir = config.dir && *config.dir ? config.dir : variable("BELLOWS_CHECKPOINT_DIR");
  if (!dir) dir = "bellows-checkpoints";
  if (snprintf(place->dir, sizeof place->dir, "%s", dir) >= static_cast<int>(sizeof place->dir)) {
    return error->set(BELLOWS_ERR_INVALID, "the checkpoint directory's name is too long: %.60s...",
                      dir);
  }
  return BELLOWS_OK;
}

// Decimal digits only, at most 18 of them. What follows them, or null.
static const char* parse_batch(const char* text, std::uint64_t* out) {
  std::uint64_t value = 0;
  std::size_t n = 0;
  for (; text[n] >= '0' && text[n] <= '9' && n < 18; ++n)
    value = value * 10 + static_cast<std::uint64_t>(text[n] - '0');
  *out = value;
  return n > 0 ? text + n : nullptr;
}

static bool parse_range(const char* text, std::uint64_t* min, std::uint64_t* max) {
  const char* dash = parse_batch(text, min);
  if (!dash || *dash != '-') return false;
  const char* end = parse_batch(dash + 1, max);
  return end && *end == 0;
}

int find_batch(std::uint64_t own, std::uint64_t* batch, ErrorText* error) {
  std::uint64_t min = 1, max = UINT64_MAX, chosen = own;
  const char* range = variable("BELLOWS_BATCH_RANGE");
  if (range && !parse_range(range, &min, &max))
    return error->set(BELLOWS_ERR_INVALID, "BELLOWS_BATCH_RANGE=%s is not MIN-MAX", range);
  if (const char* ordered = variable("BELLOWS_BATCH")) {
    const char* rest = parse_batch(ordered, &chosen);
    if (!rest || *rest)
      return error->set(BELLOWS_ERR_INVALID, "BELLOWS_BATCH=%s is not a number", ordered);
  }
  if (chosen < min || chosen > max) {
    return error->set(BELLOWS_ERR_INVALID,
                      "a batch of %llu samples is not in the job's range, %s: choose another, or "
                      "submit the job with another --batch-range",
                      static_cast<unsigned long long>(chosen), range ? range : "1 and more");
  }
  *batch = chosen;
  return BELLOWS_OK;
}

}  // namespace bellows::client
