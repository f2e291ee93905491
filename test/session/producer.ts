// The producers of another process, for enqueue.test.ts: says `ready`, waits for a word, sends, and tells what it got.
import { createClient } from '../../src/index.ts'
import { produce } from './producers.ts'

const [redis = '', mysql = '', prefix = '', session = ''] = process.argv.slice(2)
const client = createClient({ redis, mysql, prefix, logger: false })
async function send(): Promise<void> {
  const sent = await produce(client, session, 'there')
  await client.close()
  process.send?.(sent, () => process.disconnect())
}

process.once('message', () => void send())
process.send?.('ready')
