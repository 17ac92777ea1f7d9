-- Whether a server has forgotten nothing for so long; see identity.lua for what is written down. Where its clock was set back its
-- memory seems younger than it is. A process that has known this very memory for as long, by its own clock, knows better.
local function remembers(written, neededMs, known)
  if not written then return false end
  if known ~= '' and string.sub(written, 1, #known + 1) == known .. ' ' then return true end
  return now - string.sub(written, -13) >= tonumber(neededMs)
end
