-- Whether this server has forgotten nothing for `neededMs`, by the note of identity.lua. If its clock was set back, the memory
-- seems younger than it is. Then it is enough that the process has known the same memory for as long by its own clock: `known`.
local function remembers(written, neededMs, known)
  if not written then return false end
  if known ~= '' and string.sub(written, 1, #known + 1) == known .. ' ' then return true end
  return now - string.sub(written, -13) >= tonumber(neededMs)
end
