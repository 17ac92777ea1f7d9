// A process that prints its monotonic clock.
process.send?.({ time: process.hrtime.bigint() })
process.disconnect()
