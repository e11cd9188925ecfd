-- SPDX-License-Identifier: Apache-2.0
-- Sends jobs to the partition that suits their framework, unless the user has named one.

local partitions = {
  pytorch = "gpu",
  digits = "small",
}

function submit(job, tenant)
  local partition = partitions[job.framework or ""]
  if partition and not job.partition then
    job.partition = partition
    log(("%s: partition %s for %s"):format(job.user_name or "?", partition, job.framework))
  end
end
