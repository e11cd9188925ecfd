-- SPDX-License-Identifier: Apache-2.0
-- Refuses large jobs during office hours on workdays, so that many people can work at once.

local opens, closes = 8, 18 -- o'clock
local most = 8 -- GPUs

local function working()
  return now.wday >= 2 and now.wday <= 6 and now.hour >= opens and now.hour < closes
end

local function check(gpus)
  if gpus and gpus > most and working() then
    refuse(("on workdays from %d:00 to %d:00 a job may have at most %d GPUs, and this one asks for %d; "
      .. "ask for fewer or submit it later"):format(opens, closes, most, gpus))
  end
end

function submit(job, tenant)
  check(job.gpus_max)
end

function modify(job, change, tenant)
  check(change.gpus)
end
