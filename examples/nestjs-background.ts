// Two instances of a NestJS application: each tick of a cron job runs in one of them, one leads, and when it closes, the other.
// Needs: @nestjs/common, @nestjs/core, reflect-metadata, rxjs.
// Run: npx tsx examples/nestjs-background.ts
import 'reflect-metadata'
import { EventEmitter, once } from 'node:events'
import { type INestApplicationContext, Inject, Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import type { Leadership } from 'holdfast'
import { HoldfastModule, OnLeadership, Scheduled } from 'holdfast/nestjs'
import type { ScheduledRun } from 'holdfast/schedule'

const NAME = Symbol('the name of the instance')
const ticks: string[] = []
const leaders: string[] = []
const progress = new EventEmitter()

@Injectable()
class Background {
  readonly #name: string
  constructor(@Inject(NAME) name: string) {
    this.#name = name
  }

  @Scheduled('report', '* * * * * *')
  report({ scheduledAt, fence }: ScheduledRun): void {
    console.log(`${this.#name} reports for ${scheduledAt.toISOString()} under fence ${fence}`)
    ticks.push(scheduledAt.toISOString())
    progress.emit('tick')
  }

  @OnLeadership('outbox')
  async drain({ fence, signal }: Leadership): Promise<void> {
    console.log(`${this.#name} leads under fence ${fence}`)
    leaders.push(this.#name)
    progress.emit('leader')
    // A leader works until it is asked to go.
    if (!signal.aborted) await once(signal, 'abort')
    console.log(`${this.#name} has put its work down`)
  }
}

function startInstance(name: string): Promise<INestApplicationContext> {
  @Module({
    imports: [HoldfastModule.forRoot({ store: 'sqlite:./locks.db', label: name })],
    providers: [{ provide: NAME, useValue: name }, Background],
  })
  class AppModule {}
  return NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] })
}

const apps = new Map<string, INestApplicationContext>()
for (const name of ['a', 'b']) apps.set(name, await startInstance(name))

while (leaders.length < 1) await once(progress, 'leader')
while (ticks.length < 2) await once(progress, 'tick')
// A deployment stops the leader. The other instance leads, and goes on with the cron job.
await apps.get(leaders[0] ?? '')?.close()
while (leaders.length < 2) await once(progress, 'leader')
while (ticks.length < 4) await once(progress, 'tick')
await apps.get(leaders[1] ?? '')?.close()

if (new Set(leaders).size !== 2) throw new Error(`Expected both to lead, got ${leaders}`)
if (new Set(ticks).size !== ticks.length) throw new Error(`Expected each tick once, got ${ticks}`)
