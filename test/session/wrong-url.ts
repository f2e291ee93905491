// A process that makes a client and a worker with each pair of stores of its argument, closes what it got, says what came
// of it, and has nothing more to do: it has to end by itself.
import { createClient, createWorker } from '../../src/index.ts'

const codeOf = (error: unknown) => (error as { code: string }).code

async function tryOut(stores: { redis: string; mysql: string }): Promise<string[]> {
  const said: string[] = []
  const options = { ...stores, logger: false, enqueueTimeoutMs: 4000 } as const
  try {
    const client = createClient(options)
    await client.enqueue('chat', 'hello').catch((error: unknown) => said.push(codeOf(error)))
    await client.close()
    const worker = createWorker({ ...options, handler: () => {} })
    await worker.start()
    await worker.stop()
    said.push('closed')
  } catch (error) {
    said.push(codeOf(error))
    try {
      createWorker({ ...options, handler: () => {} })
    } catch (again) {
      said.push(codeOf(again))
    }
  }
  return said
}

for (const stores of JSON.parse(process.argv[2] ?? '') as { redis: string; mysql: string }[]) {
  process.stdout.write(`${(await tryOut(stores)).join(' ')}\n`)
}
