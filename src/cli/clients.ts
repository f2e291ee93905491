/** A client for the length of one command. */
import { type Client, createClient } from '../index.ts'
import { connectionsOf, type StoreFlags } from './settings.ts'

export async function withClient<T>(flags: StoreFlags, use: (client: Client) => Promise<T>): Promise<T> {
  const client = createClient(connectionsOf(flags))
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}
