// Fifty producers at once over one client: each sends a message of its own and one under one of five shared keys.
import type { Accepted, Client } from '../../src/index.ts'

export type Sent = Accepted & { key: string | null }

export async function produce(client: Client, sessionId: string, name: string): Promise<Sent[]> {
  const sent = Array.from({ length: 50 }, async (_, index) => {
    const key = `shared-${index % 5}`
    const own = await client.enqueue(sessionId, `${name}/${index}`)
    const shared = await client.enqueue(sessionId, key, { idempotencyKey: key })
    return [
      { ...own, key: null },
      { ...shared, key },
    ]
  })
  return (await Promise.all(sent)).flat()
}
