// A process that tells what its monotonic clock says.
process.send?.({ time: process.hrtime.bigint() })
process.disconnect()
