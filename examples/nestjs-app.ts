// A NestJS application that pays invoices, each by one call at a time, over all its instances.
// Needs: @nestjs/common, @nestjs/core, @nestjs/platform-express, reflect-metadata, rxjs.
// Run: npx tsx examples/nestjs-app.ts
import 'reflect-metadata'
import { setTimeout as sleep } from 'node:timers/promises'
import { Controller, type INestApplication, Inject, Injectable, Module, Param, Post } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { currentLock, HoldfastModule, WithLock } from 'holdfast/nestjs'

const paid = new Set<string>()

@Injectable()
class Invoices {
  @WithLock((id: string) => `invoice:${id}`, { wait: '2s' })
  async pay(id: string): Promise<string> {
    if (paid.has(id)) return 'before'
    const { lease, signal } = currentLock()
    // The slow part is told when the client has gone, or the lease is lost.
    await sleep(100, undefined, { signal })
    lease.assertHeld()
    paid.add(id)
    return `now, under fence ${lease.fence}`
  }
}

@Controller('invoices')
class InvoiceController {
  readonly #invoices: Invoices
  constructor(@Inject(Invoices) invoices: Invoices) {
    this.#invoices = invoices
  }

  @Post(':id/pay')
  pay(@Param('id') id: string): Promise<string> {
    return this.#invoices.pay(id)
  }
}

@Module({
  imports: [
    HoldfastModule.forRootAsync({
      useFactory: () => ({ store: process.env['STORE'] ?? 'sqlite:./locks.db', label: 'nestjs' }),
    }),
  ],
  controllers: [InvoiceController],
  providers: [Invoices],
})
class AppModule {}

async function startInstance(): Promise<INestApplication> {
  const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] })
  // So that SIGTERM ends the requests and gives the keys back.
  app.enableShutdownHooks()
  await app.listen(0, '127.0.0.1')
  return app
}

async function pay(app: INestApplication, id: number): Promise<string> {
  const headers = { connection: 'close' }
  const response = await fetch(`${await app.getUrl()}/invoices/${id}/pay`, { method: 'POST', headers })
  return response.text()
}

const [a, b] = await Promise.all([startInstance(), startInstance()])

// Both are asked at once: one pays, the other waits and sees that it is done.
const answers = await Promise.all([pay(a, 42), pay(b, 42)])
console.log(`instance a: paid ${answers[0]}`)
console.log(`instance b: paid ${answers[1]}`)

await Promise.all([a.close(), b.close()])
if (answers.filter((answer) => answer === 'before').length !== 1)
  throw new Error(`Expected one to pay: ${answers}`)
