    -- Only on redlock, without fences: nobody sees the number, so the last fence stays as it is.
    if ARGV[5] == '-' then return 'h' .. fence end
