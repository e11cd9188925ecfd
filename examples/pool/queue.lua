-- A policy for `bellows pool create --policy queue.lua`. A member says `running`, how many requests it works on, and
-- `oldest`, for how many seconds the first of its waiting requests has waited.
metrics = {"running", "oldest"}

local per_member = 8
local patience = 5

function members(signals)
  local running, oldest = signals.metrics.running, signals.metrics.oldest
  local needed = running.sum / per_member
  -- There seem to be enough, and still requests wait: the members are slower than we believe. One more at a time; the median
  -- does not believe one member that lies.
  if oldest.median > patience then
    local more = signals.starting == 0 and 1 or 0
    needed = math.max(needed, signals.wanted + more)
  end
  return needed
end
