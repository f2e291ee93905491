// How a client process of the campaign speaks to the fleet: with a client of the library's, straight to the stores, or over
// HTTP to any of its servers. What it can say is the same.
import {
  type Accepted,
  createClient,
  type MessageInput,
  type SendItem,
  type SendOptions,
  type SendResult,
  type StopReceipt,
  type TranscriptPage,
  type TunablesInput,
  type WatchEvent,
} from '../../src/index.ts'
import { type HttpAddress, HttpSpeaker } from './http-speaker.ts'

/** Of a client of the library's, what the campaign needs. */
export interface Speaker {
  enqueue(session: string, message: MessageInput, options: SendOptions): Promise<Accepted>
  enqueueMany(items: readonly SendItem[]): Promise<SendResult[]>
  stop(session: string, options: { through?: number }): Promise<StopReceipt>
  withdraw(session: string, seq: number): Promise<void>
  transcript(session: string, options: { limit: number }): Promise<TranscriptPage>
  subscribe(session: string, options: { after: string; signal: AbortSignal }): AsyncIterable<WatchEvent>
  close(): Promise<void>
}

export interface StoresAddress {
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly tunables: TunablesInput
}

/** Where the fleet is found. */
export type Address = StoresAddress | HttpAddress

export function speakerAt(address: Address): Speaker {
  if ('urls' in address) return new HttpSpeaker(address)
  const { redisUrl: redis, mysqlUrl: mysql, tunables } = address
  return createClient({ redis, mysql, logger: false, ...tunables })
}
