-- A new fence is larger than every fence before, for any key, and at least the server's time in microseconds. So no room
-- has to remember its last fence. A fence is a text, because Lua turns a number into a text of 14 digits only. Behind
-- last.lua.
local us, lastFence, noFence = tonumber(usText), nil, false

-- Returns nothing if the stored last fence is none to count on from. Then no ticket is admitted, and the rooms stay
-- sound.
local function nextFence()
  if noFence then return end
  if lastFence then
    lastFence = lastFence + 1
  else
    local previous = takeLast(usText)
    if not previous then
      noFence = true
      return
    end
    lastFence = us > previous and us or previous + 1
    -- The clock was set back. Redis undoes nothing of a script, and a script that fails half-way must not leave a last
    -- fence below the fences that it gave. So this reserves 100,000 fences; keepFence writes the true last one.
    if us <= previous then redis.call('SET', KEYS[1], string.format('%.0f', lastFence + 100000)) end
  end
  return lastFence == us and usText or string.format('%.0f', lastFence)
end

-- Comes at the end of every script that may have given fences.
local function keepFence()
  if lastFence and lastFence > us then redis.call('SET', KEYS[1], string.format('%.0f', lastFence)) end
end
