// Traps of Redis Cluster: PUBLISH and PUBSUB NUMSUB answer for the node that was asked, so silence there proves nothing.
import { Cluster, Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { now } from '../../src/base/timing.ts'
import { freePort } from '../../src/cli/probes.ts'
import type { Server } from '../../src/cli/servers.ts'
import { createWorker, type Worker } from '../../src/index.ts'
import { ownRedis } from '../support/services.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, PATIENT_LOCK, type World } from './world.ts'

const nodes: Server[] = []
let world: World
beforeAll(async () => {
  for (let index = 0; index < 2; index++) {
    const bus = String(await freePort())
    nodes.push(
      await ownRedis([
        '--cluster-enabled',
        'yes',
        '--cluster-announce-ip',
        '127.0.0.1',
        '--cluster-port',
        bus,
      ]),
    )
    const admin = new Redis(nodes[index]!.url)
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', ...(index === 0 ? ['0', '8191'] : ['8192', '16383']))
    if (index === 1) await admin.call('CLUSTER', 'MEET', '127.0.0.1', nodes[0]!.port, await busOf(nodes[0]!))
    admin.disconnect()
  }
  for (const node of nodes) {
    const admin = new Redis(node.url)
    await eventually(
      async () => String(await admin.call('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      'a cluster',
    )
    await eventually(async () =>
      String(await admin.call('CLUSTER', 'INFO')).includes('cluster_known_nodes:2'),
    )
    admin.disconnect()
  }
})
afterAll(() => Promise.all(nodes.map((node) => node.stop())))
beforeEach(async () => {
  world = await openWorld()
})
afterEach(() => world.close())

async function busOf(node: Server): Promise<string> {
  const admin = new Redis(node.url)
  const [, port] = (await admin.config('GET', 'cluster-port')) as string[]
  admin.disconnect()
  return String(port)
}

test('I4 I8 · trap: in a cluster nobody is judged by subscriptions that one node cannot see', async () => {
  const stages = [new Stage(), new Stage(), new Stage()]
  const cluster = new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    { lazyConnect: true },
  )
  const verdicts: string[] = []
  // Three, because each subscribes at a node of its choice: mostly not all at the same.
  const workers = stages.map(({ handler }) =>
    createWorker({
      ...PATIENT_LOCK,
      handler,
      redis: cluster,
      mysql: world.mysqlUrl,
      prefix: world.prefix,
      logger: false,
    }),
  )
  for (const worker of workers) {
    worker.on('process.suspected', ({ process }) => void verdicts.push(`suspected ${process}`))
    worker.on('session.evicted', ({ session }) => void verdicts.push(`evicted ${session}`))
    await worker.start()
  }
  // Nobody is told of them (the client talks to another Redis): the sweep finds them.
  for (let index = 0; index < 9; index++) await world.client.enqueue(`s${index}`, 'wait')
  const begun = () => stages.reduce((sum, { turns }) => sum + turns.length, 0)
  await eventually(() => begun() === 9, 'all turns begin')
  const since = now()
  await eventually(() => now() - since > PATIENT_LOCK.deadAfterMs * 3, 'time enough for a verdict')
  expect(verdicts).toEqual([])
  for (const stage of stages) stage.go()
  for (let index = 0; index < 9; index++) await world.done(`s${index}`)
  expect(begun()).toBe(9)
  await Promise.all(workers.map((worker) => worker.stop({ graceMs: 0 })))
  cluster.disconnect()
})

test('I8 · trap: what a full process deals out in a cluster begins elsewhere, and is told once, whatever one node says', async () => {
  const cluster = new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    { lazyConnect: true },
  )
  const admins = nodes.map(({ url }) => new Redis(url))
  const processKey = ({ processId }: Worker) => world.keys.process(processId)
  const wakes: string[] = []
  const ear = new Redis(nodes[0]!.url)
  ear.on('pmessage', (_pattern, channel: string, text: string) => void wakes.push(`${channel} ${text}`))
  await ear.psubscribe(`${world.prefix}:*`)
  const [full, free] = [new Stage(), new Stage()]
  const start = async ({ handler }: Stage, concurrency: number) => {
    const worker = createWorker({
      ...PATIENT_LOCK,
      sweepMs: 300_000,
      concurrency,
      handler,
      redis: cluster,
      mysql: world.mysqlUrl,
      prefix: world.prefix,
      logger: false,
    })
    await worker.start()
    const channel = world.keys.processChannel(worker.processId)
    await eventually(async () => {
      const heard = await Promise.all(admins.map((admin) => admin.pubsub('NUMSUB', channel)))
      return heard.some(([, count]) => count === 1) && (await cluster.exists(processKey(worker))) === 1
    }, 'the worker is up')
    return worker
  }
  const busy = await start(full, 1)
  const tell = (id: string) => cluster.publish(world.keys.processChannel(busy.processId), `wake ${id}`)
  await world.client.enqueue('first', 'wait')
  await tell('first')
  await full.began()
  // One that the node which is asked does not hear: which node a channel's words go to, and where a process listens,
  // are both left to chance.
  let idle = await start(free, 5)
  while ((await cluster.publish(world.keys.processChannel(idle.processId), 'wake nobody')) > 0) {
    await idle.stop()
    idle = await start(free, 5)
  }
  const ids = Array.from({ length: 12 }, (_, index) => `s${index}`)
  for (const id of ids) {
    await world.client.enqueue(id, 'hello')
    await tell(id)
    await world.done(id)
  }
  expect(free.turns.map(({ sessionId }) => sessionId)).toEqual(ids)
  const told = wakes.filter((line) => line.includes(' wake s') && !line.includes(busy.processId))
  const channel = world.keys.processChannel(idle.processId)
  expect(told).toEqual([...new Set(told)])
  // The first sweep of a process may come before the first of them.
  expect(told).toEqual(expect.arrayContaining(ids.slice(1).map((id) => `${channel} wake ${id}`)))
  full.go()
  await world.done('first')
  await Promise.all([busy, idle].map((worker) => worker.stop({ graceMs: 0 })))
  for (const client of [ear, ...admins]) client.disconnect()
  cluster.disconnect()
})
