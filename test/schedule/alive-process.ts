// Has only a schedule, and work that waits for something that keeps no process alive.
import { connect } from '../../src/index.ts'
import { createSchedule } from '../../src/schedule/index.ts'

const locks = await connect('memory:')
const schedule = createSchedule(locks)
schedule.add('job', '* * * * * *', async () => {
  await new Promise((resolve) => setTimeout(resolve, 300).unref())
  console.log('worked')
  setTimeout(async () => {
    await schedule.stop()
    await locks.close()
    console.log('stopped')
  }, 100)
})
schedule.start()
