/** The producer of the demo, a process of its own as a web backend is one: sends what its parent tells it to. */
import { createClient } from '../index.ts'
import { scriptOf } from './agent.ts'

/** To the producer. */
export interface Order {
  readonly order: number
  readonly session: string
  readonly script: number
}

/** From the producer: a message that was accepted, or why it was not. */
export type Answer =
  | { readonly order: number; readonly session: string; readonly seq: number; readonly id: string }
  | { readonly order: number; readonly error: string }

const client = createClient({
  ...(JSON.parse(process.argv[2] ?? '') as { redis: string; mysql: string; prefix: string }),
})

process.on('message', ({ order, session, script }: Order) => {
  const answer = (what: Answer) => void process.send?.(what)
  client
    .enqueue(session, { kind: 'question', payload: { script, text: scriptOf(script).question } })
    .then(({ seq, id }) => answer({ order, session, seq, id }))
    .catch((error: unknown) => answer({ order, error: String(error) }))
})
process.on('SIGINT', () => undefined)
process.once('SIGTERM', () => void client.close().then(() => process.exit(0)))
process.once('disconnect', () => process.exit(0))
