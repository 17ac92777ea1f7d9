-- While a slot is moving away, its server refuses a key that is not there, also in the middle of a script, of which nothing is
-- undone. Before a key is away for a moment: stumble over one that is never there.
redis.call('GET', string.sub(KEYS[1], 1, -#'fence' - 1) .. 'probe')
