-- SPDX-License-Identifier: Apache-2.0
-- What the benchmark's bellows.yaml and rules.lua say, as a site would write it for Slurm's own
-- job_submit/lua (Lua 5.1): the same checks, and the same changes to the job.

local prefix = "_SLURM_SPANK_OPTION_bellows_"
local frameworks, tenants = {}, {}
for i = 0, 39 do
  frameworks["framework" .. i] = {
    default = "2.1",
    state = { ["2.1"] = "supported", ["1.13"] = "deprecated", ["1.8"] = "removed" },
    env = { NCCL_DEBUG = "WARN", OMP_NUM_THREADS = "4" },
  }
end
for i = 0, 49 do
  tenants["account" .. i] = {
    name = "tenant" .. i,
    frameworks = { "^framework7$", "^framework" .. i % 40 .. ".*$" },
    min = 1, max = 16, start = 2, time_default = 240, time_max = 2880, max_nodes = 4,
    partitions = { "^main$", "^gpu.*$" },
  }
end
local most = { alice = 32, bob = 16 }

local function refuse(...)
  slurm.log_user(string.format(...))
  return slurm.ERROR
end

local function any(patterns, text)
  for _, pattern in ipairs(patterns) do
    if text:find(pattern) then return true end
  end
  return false
end

local function unset(number)
  return number == nil or number == slurm.NO_VAL or number == slurm.NO_VAL16
end

local function check_rules(job, user, gpus)
  local now = os.date("*t")
  if gpus > 8 and now.wday >= 2 and now.wday <= 6 and now.hour >= 8 and now.hour < 18 then
    return refuse("on workdays from 8:00 to 18:00 a job may have at most 8 GPUs, and this one asks for %d", gpus)
  end
  local cap = most[user or ""] or 8
  if gpus > cap then return refuse("%s may use at most %d GPUs in a job", user or "you", cap) end
  job.comment = "hooked"
end

-- The framework and its version, or nothing after a refusal.
local function choose_framework(tenant, asked)
  local name, version = asked:match("^([^:]*):?(.*)$")
  local framework = frameworks[name]
  if not framework then return refuse("framework %s is not known here", name) end
  if version == "" then version = framework.default end
  local state = framework.state[version]
  if not state then return refuse("framework %s has no version %s", name, version) end
  if state == "removed" then return refuse("%s:%s was removed", name, version) end
  if not any(tenant.frameworks, name) and not any(tenant.frameworks, name .. ":" .. version) then
    return refuse("tenant %s may not use framework %s", tenant.name, name)
  end
  return nil, framework, name .. ":" .. version
end

local function choose_size(job, tenant, asked)
  local least, largest = asked:match("^(%d+)-?(%d*)$")
  if not least then return refuse("--gpus-range=%s is no range", asked) end
  least, largest = tonumber(least), tonumber(largest) or tonumber(least)
  if least < tenant.min or largest > tenant.max or least > largest then
    return refuse("a job of tenant %s may have %d-%d GPUs", tenant.name, tenant.min, tenant.max)
  end
  local size = tenant.start
  if job.tres_per_job then
    size = tonumber(job.tres_per_job:match("gpu:(%d+)$"))
    if not size then return refuse("%s can't be understood", job.tres_per_job) end
  end
  if size < least or size > largest then
    return refuse("--gpus=%d is not one of the sizes of --gpus-range=%s", size, asked)
  end
  return nil, size, least, largest
end

local function check_terms(job, tenant)
  if job.partition and not any(tenant.partitions, job.partition) then
    return refuse("tenant %s may not use partition %s", tenant.name, job.partition)
  end
  if unset(job.time_limit) then
    job.time_limit = tenant.time_default
  elseif job.time_limit > tenant.time_max then
    return refuse("a job of tenant %s may take %d minutes", tenant.name, tenant.time_max)
  end
  if unset(job.max_nodes) or job.max_nodes > tenant.max_nodes then job.max_nodes = tenant.max_nodes end
end

local function write_terms(job, tenant, framework, named, size, least, largest)
  job.tres_per_job = "gres:gpu:" .. size
  job.num_tasks = size
  job.min_cpus = size
  job.requeue = 1
  job.cpus_per_tres = "gres:gpu:4"
  job.mem_per_tres = "gres:gpu:1536"
  for key, value in pairs(framework.env) do
    if job.environment[key] == nil then job.environment[key] = value end
  end
  job.admin_comment = string.format("bellows/1 tenant=%s framework=%s gpus=%d-%d ckpt=%s", tenant.name, named,
    least, largest, "/shared/checkpoints/%25u/%25j")
end

-- The value of one of Bellows' options. spank_job_env is a list of NAME=VALUE.
local function option(job, name)
  local start = prefix .. name .. "="
  for _, entry in pairs(job.spank_job_env or {}) do
    if entry:sub(1, #start) == start then return entry:sub(#start + 1) end
  end
end

function slurm_job_submit(job, _, _)
  local framework_asked, range_asked = option(job, "framework"), option(job, "gpus_range")
  if not framework_asked and not range_asked then return slurm.SUCCESS end
  local account = (job.account or job.default_account or ""):lower()
  local tenant = tenants[account]
  if not tenant then return refuse("account %s belongs to no tenant", account) end
  job.account = account
  local failed, framework, named = choose_framework(tenant, framework_asked or "framework7")
  if failed then return failed end
  local refused, size, least, largest = choose_size(job, tenant, range_asked or "2-2")
  if refused then return refused end
  local why = check_terms(job, tenant) or check_rules(job, job.user_name, largest)
  if why then return why end
  write_terms(job, tenant, framework, named, size, least, largest)
  return slurm.SUCCESS
end

function slurm_job_modify()
  return slurm.SUCCESS
end
