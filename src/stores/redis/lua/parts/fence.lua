-- Larger than every fence before, for any key, and at least the server's time: so no room has to remember its last one.
-- As text, because numbers become text with 14 digits only. Behind last.lua.
local us, lastFence, noFence = tonumber(usText), nil, false

-- Nothing where what is kept as the last fence is no fence to go on from: then nobody is admitted, and the rooms stay sound.
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
    -- The clock was set back. Nothing of a script is undone, so one that fails half-way must not leave a lower fence here:
    -- room for all that it may give, until keepFence says how many these were.
    if us <= previous then redis.call('SET', KEYS[1], string.format('%.0f', lastFence + 100000)) end
  end
  return lastFence == us and usText or string.format('%.0f', lastFence)
end

-- At the end of a script that may have given fences.
local function keepFence()
  if lastFence and lastFence > us then redis.call('SET', KEYS[1], string.format('%.0f', lastFence)) end
end
