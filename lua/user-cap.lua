-- SPDX-License-Identifier: Apache-2.0
-- Limits the size of a job for each user, whatever the tenant's limits allow.

local caps = {
  alice = 32,
  bob = 4,
}
local default = 8

local function check(user, gpus)
  local cap = caps[user] or default
  if gpus and gpus > cap then
    return ("%s may use at most %d GPUs in a job, and this one could grow to %d"):format(user, cap, gpus)
  end
end

function submit(job, tenant)
  return check(job.user_name, job.gpus_max)
end

function modify(job, change, tenant)
  return check(job.user_name, change.gpus)
end
