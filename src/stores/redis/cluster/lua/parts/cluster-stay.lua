-- While a slot is moving away, its server refuses every key that it does not have, also in the middle of a script.
-- Redis undoes nothing of a script. So this reads a key that never exists: if the slot is moving, the script fails
-- here, before it deletes a key.
redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'probe')
