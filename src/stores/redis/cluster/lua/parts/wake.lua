-- As wake.lua, in a cluster. A process that waits for keys of this slot listens for that on the server that has the slot, and a
-- message then reaches nobody else. Where nobody heard it (it does not listen here yet, the slot is moving, it holds a key that was
-- evicted, or servers older than 7 know no such messages) one is sent to all servers, on one of which every process listens. How
-- many got it in the whole cluster is not known, so there is no result.
local asking, own = nil, {}
local function wake(inbox, id)
  if inbox == asking then
    own[#own + 1] = '*' .. id
  else
    local heard = redis.pcall('SPUBLISH', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'inbox:' .. inbox, id)
    if heard == 0 or type(heard) == 'table' then
      -- Without the right to publish, who waits asks instead.
      redis.pcall('PUBLISH', string.match(KEYS[1], '^(.*){[^{}]*}fence$') .. 'inbox:' .. inbox, id)
    end
  end
end
